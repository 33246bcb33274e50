"""Datasets, sources, preprocessing, augmentation, samplers, pairs and episodes, for every dataset family of Liu (2020)."""

from .audio_preprocessing import AudioPreprocessing
from .augment import FACES, Affine, Augmentation, Compose, CropFlip, Normalize, RotateJitter
from .catalog import CATALOG
from .checking import CheckReport, Twins, check
from .cifar import CIFAR10, CIFAR100
from .color_jitter import ColorJitter
from .decoded_cache import DecodedCache, cache_decoded
from .digits import Digits
from .elastic import Elastic
from .errors import CorruptDataError, DataError, MissingDataError, UnusableSampleError
from .face_quality import FaceQualityGate
from .faces import Face, FaceError, FacePreprocessing, align_face, detect_faces
from .fetch import get
from .flips import Flip
from .graphs import Planetoid
from .in_memory import InMemory
from .letters import Letters
from .lfw import LFW
from .loader import Loader
from .mnist import MNIST, FashionMNIST
from .modelnet import ModelNet10Clouds, ModelNet10Voxels, ModelNet40
from .omniglot import Omniglot, OneShotRun, one_shot_runs
from .picture_folder import PictureFolder
from .preprocessing import PicturePreprocessing, Prepared, Preprocessing
from .python_docs import PythonDocs
from .random_erasing import RandomErasing
from .recordings import Recording, read_recording
from .resized_crop import ResizedCrop
from .roots import data_roots
from .rotations import Rotations
from .samplers import ClassBalancedSampler, Episode, EpisodeSampler, HardClassSampler, Sequential, Shuffled
from .sound_augmentation import AddNoise, Gain, RandomCrop, Reverberate, SpecAugment, Speed
from .sources import (
    ArraySource,
    CombinedSource,
    DatasetSource,
    FileSource,
    FolderSource,
    HubSource,
    Record,
    ShardSource,
    Source,
    SourceDataset,
    TableSource,
    open_source,
    source_formats,
)
from .spectrograms import mel_filters, mel_spectrogram
from .streams import Stream, identity_split
from .subsets import ImbalancedMultiple, ImbalancedSingle, OfClasses, Subset
from .synthetic import PlantedGraph, Shapes
from .tiny_imagenet import TinyImageNet
from .verification_pairs import Pairs, pairs
from .voice_activity import trim_silence

__all__ = [
    "CATALOG",
    "CIFAR10",
    "CIFAR100",
    "FACES",
    "LFW",
    "MNIST",
    "AddNoise",
    "Affine",
    "ArraySource",
    "AudioPreprocessing",
    "Augmentation",
    "CheckReport",
    "ClassBalancedSampler",
    "ColorJitter",
    "CombinedSource",
    "Compose",
    "CorruptDataError",
    "CropFlip",
    "DataError",
    "DatasetSource",
    "DecodedCache",
    "Digits",
    "Elastic",
    "Episode",
    "EpisodeSampler",
    "Face",
    "FaceError",
    "FacePreprocessing",
    "FaceQualityGate",
    "FashionMNIST",
    "FileSource",
    "Flip",
    "FolderSource",
    "Gain",
    "HardClassSampler",
    "HubSource",
    "ImbalancedMultiple",
    "ImbalancedSingle",
    "InMemory",
    "Letters",
    "Loader",
    "MissingDataError",
    "ModelNet10Clouds",
    "ModelNet10Voxels",
    "ModelNet40",
    "Normalize",
    "OfClasses",
    "Omniglot",
    "OneShotRun",
    "Pairs",
    "PictureFolder",
    "PicturePreprocessing",
    "Planetoid",
    "PlantedGraph",
    "Prepared",
    "Preprocessing",
    "PythonDocs",
    "RandomCrop",
    "RandomErasing",
    "Record",
    "Recording",
    "ResizedCrop",
    "Reverberate",
    "RotateJitter",
    "Rotations",
    "Sequential",
    "Shapes",
    "ShardSource",
    "Shuffled",
    "Source",
    "SourceDataset",
    "SpecAugment",
    "Speed",
    "Stream",
    "Subset",
    "TableSource",
    "TinyImageNet",
    "Twins",
    "UnusableSampleError",
    "align_face",
    "cache_decoded",
    "check",
    "data_roots",
    "detect_faces",
    "get",
    "identity_split",
    "mel_filters",
    "mel_spectrogram",
    "one_shot_runs",
    "open_source",
    "pairs",
    "read_recording",
    "source_formats",
    "trim_silence",
]
