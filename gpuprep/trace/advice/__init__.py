"""What should be changed, and how much would it gain?"""
