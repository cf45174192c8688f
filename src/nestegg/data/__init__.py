"""Datasets, their files and formats, and how they are divided among clients."""

from nestegg.data.datasets import DATASETS, Dataset, load_dataset
from nestegg.data.partition import PARTITIONS, partition, thinned

__all__ = ["DATASETS", "PARTITIONS", "Dataset", "load_dataset", "partition", "thinned"]
