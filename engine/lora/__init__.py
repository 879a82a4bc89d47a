"""LoRA adapters: their files, their stacked weights beside the model's, and steps that use several of them."""
