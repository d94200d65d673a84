"""How are persistence mode, clocks, power limit, ECC and MIG set, now and at every boot?"""
