"""What is in a file of a profiler? Readers for Kineto and Nsight Systems fill trace/columns."""
