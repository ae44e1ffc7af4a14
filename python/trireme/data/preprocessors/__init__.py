"""Preprocessors: fitted to a dataset, applied to datasets and batches, saved with the checkpoint."""

from trireme.data.preprocessors._composed import BatchMapper, Chain, TorchVisionPreprocessor
from trireme.data.preprocessors._concatenator import Concatenator
from trireme.data.preprocessors._discretizers import CustomKBinsDiscretizer, UniformKBinsDiscretizer
from trireme.data.preprocessors._encoders import (
    Categorizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
)
from trireme.data.preprocessors._imputer import SimpleImputer
from trireme.data.preprocessors._preprocessor import Preprocessor, PreprocessorNotFittedException
from trireme.data.preprocessors._scalers import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from trireme.data.preprocessors._text import CountVectorizer, FeatureHasher, HashingVectorizer, Tokenizer

__all__ = [
    "BatchMapper",
    "Categorizer",
    "Chain",
    "Concatenator",
    "CountVectorizer",
    "CustomKBinsDiscretizer",
    "FeatureHasher",
    "HashingVectorizer",
    "LabelEncoder",
    "MaxAbsScaler",
    "MinMaxScaler",
    "MultiHotEncoder",
    "Normalizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "PowerTransformer",
    "Preprocessor",
    "PreprocessorNotFittedException",
    "RobustScaler",
    "SimpleImputer",
    "StandardScaler",
    "Tokenizer",
    "TorchVisionPreprocessor",
    "UniformKBinsDiscretizer",
]
