"""How is a profile of a program recorded?"""
