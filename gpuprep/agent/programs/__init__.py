"""How does the agent start programs and read files safely, and how does it end all that it started?"""
