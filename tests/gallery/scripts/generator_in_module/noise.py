import numpy as np

rng = np.random.default_rng(31)


def corrupt(shape):
    return (rng.random(shape) > 0.25).astype(np.float32)
