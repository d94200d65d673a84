"""Which rank of a job waits for which?"""
