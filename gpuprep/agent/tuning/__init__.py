"""How does the machine get its persistence mode, clocks, power limit, ECC and MIG mode, now and at every boot?"""
