"""The benchmark: how fast a round is, here and with other simulators, what it spends its time on, and how it grows."""
