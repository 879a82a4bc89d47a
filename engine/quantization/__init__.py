"""Weight quantization: int8, int4 and fp8 weights, their kernels, and packed checkpoints."""
