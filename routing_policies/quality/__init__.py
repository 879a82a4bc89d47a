"""Which of two models a prompt needs: features, model, guard, calibration, training."""
