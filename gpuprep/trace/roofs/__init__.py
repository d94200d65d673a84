"""How near to the roof of its GPU is each product, and what would make it faster?"""
