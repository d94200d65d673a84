"""What kind of work is an op or a kernel: does it use Tensor Cores, could it, how many operations is it? Pure."""
