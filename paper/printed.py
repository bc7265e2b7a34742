"""The figures that the paper prints, as data."""

from __future__ import annotations

# model -> the name that tables and plots show
SHOWN = {
    "distmult": "DistMult",
    "hole": "HolE",
    "complex": "ComplEx",
    "rescal": "RESCAL",
    "tree": "Tree",
    "tucker": "Tucker",
    "cont": "ConT",
}

# entity and predicate: filtered MRR, Hits@1, @3, @10 in percent
GDELT = {
    "distmult": {"entity": (0.182, 6.55, 19.77, 43.70), "predicate": (0.269, 12.65, 30.29, 59.40)},
    "hole": {"entity": (0.177, 6.67, 18.95, 41.84), "predicate": (0.256, 11.81, 28.35, 57.73)},
    "complex": {"entity": (0.172, 6.54, 17.52, 41.56), "predicate": (0.255, 12.05, 27.75, 56.60)},
    "tree": {"entity": (0.196, 8.17, 21.00, 44.65), "predicate": (0.274, 13.30, 30.66, 60.05)},
    "tucker": {"entity": (0.204, 8.93, 21.85, 46.35), "predicate": (0.275, 12.69, 31.35, 60.70)},
    "cont": {"entity": (0.233, 13.85, 24.65, 42.96), "predicate": (0.263, 12.83, 29.27, 57.30)},
}
ICEWS = {
    "distmult": {"entity": (0.222, 9.72, 22.48, 52.32), "predicate": (0.520, 33.73, 62.25, 91.13)},
    "hole": {"entity": (0.229, 9.85, 23.49, 54.21), "predicate": (0.517, 31.55, 65.47, 93.59)},
    "complex": {"entity": (0.229, 8.94, 23.53, 57.72), "predicate": (0.506, 30.99, 61.46, 93.44)},
    "tree": {"entity": (0.205, 10.48, 19.84, 42.81), "predicate": (0.554, 36.62, 67.25, 94.70)},
    "tucker": {"entity": (0.257, 12.88, 27.10, 54.43), "predicate": (0.563, 36.96, 69.55, 95.43)},
    "cont": {"entity": (0.264, 15.71, 29.60, 46.67), "predicate": (0.557, 38.12, 67.76, 87.71)},
}

# rare facts, at dim 200 (compositional models) and 40 (tensor models): MRR and Hits@3 in percent
RARE = {
    "distmult": {"time": (0.257, 27.0), "entity": (0.211, 21.9)},
    "hole": {"time": (0.216, 20.8), "entity": (0.179, 16.3)},
    "complex": {"time": (0.354, 40.3), "entity": (0.301, 33.2)},
    "tree": {"time": (0.421, 55.3), "entity": (0.314, 35.7)},
    "tucker": {"time": (0.923, 98.9), "entity": (0.893, 97.1)},
    "cont": {"time": (0.982, 99.7), "entity": (0.950, 97.9)},
}

# Hits@10 in percent, filtered and raw, of the two projections on genuine and false triples, and of semantic models
PROJECTION = {
    "distmult": {
        "start": (3.8, 3.6),
        "start-end": (5.6, 5.0),
        "start false": (4.0, 3.8),
        "start-end false": (3.8, 3.6),
        "semantic": (59.3, 32.4),
    },
    "hole": {
        "start": (5.8, 5.4),
        "start-end": (5.5, 5.1),
        "start false": (4.7, 4.5),
        "start-end false": (5.6, 5.2),
        "semantic": (56.1, 31.3),
    },
    "complex": {
        "start": (4.1, 3.7),
        "start-end": (4.9, 4.4),
        "start false": (3.9, 3.7),
        "start-end false": (3.8, 3.6),
        "semantic": (60.1, 29.4),
    },
    "tucker": {
        "start": (14.8, 13.1),
        "start-end": (15.1, 13.4),
        "start false": (11.3, 10.3),
        "start-end false": (11.8, 10.9),
        "semantic": (46.5, 23.7),
    },
    "cont": {
        "start": (30.9, 24.6),
        "start-end": (40.8, 30.3),
        "start false": (23.0, 19.9),
        "start-end false": (22.6, 19.3),
        "semantic": (43.8, 20.4),
    },
}

# seconds of one training epoch on a Tesla K80, by model and dim
RUNTIME: dict[str, dict[int, float]] = {
    "distmult": {40: 35.2, 60: 36.4, 150: 53.7},
    "hole": {40: 42.8, 60: 43.2, 150: 59.0},
    "complex": {40: 40.1, 60: 42.4, 150: 57.5},
    "tree": {40: 133.6, 60: 160.2},
    "cont": {40: 95.4, 60: 226.1},
    "tucker": {40: 144.2, 60: 387.9},
}
