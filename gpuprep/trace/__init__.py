"""Where did the training step go? Reads profiles of PyTorch and Nsight Systems, sums them, and advises."""
