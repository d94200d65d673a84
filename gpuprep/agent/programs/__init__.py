"""How does the agent start programs, read and write files, and end all that it started?"""
