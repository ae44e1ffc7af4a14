"""ray.data: Trireme's datasets have Ray's names."""

from __future__ import annotations

from trireme.compat.ray._names import Module, module, refused, same

_DATA = "trireme.data"
_NAMES = (
    "ActorPoolStrategy ArrowBatchCollateFn BlockBasedFileDatasink BlockMetadata CollateFn DataContext DataIterator "
    "Dataset DatasetContext DatasetIterator DatasetSummary Datasink Datasource ExecutionOptions ExecutionResources "
    "FileBasedDatasource FileShuffleConfig FilenameProvider MaterializedDataset MixStoppingCondition "
    "NumpyBatchCollateFn PandasBatchCollateFn RandomSeedConfig ReadTask RowBasedFileDatasink SaveMode TaskPoolStrategy "
    "col from_arrow from_arrow_refs from_blocks from_daft from_dask from_huggingface from_items from_modin from_numpy "
    "from_numpy_refs from_pandas from_pandas_refs from_spark from_tf from_torch lit range range_tensor read_audio "
    "read_avro read_binary_files read_csv read_datasource read_delta read_iceberg read_images read_json read_lance "
    "read_numpy read_orc read_parquet read_sql read_text read_tfrecords read_videos read_webdataset"
)
_PREPROCESSORS = (
    "BatchMapper Categorizer Chain Concatenator CountVectorizer CustomKBinsDiscretizer FeatureHasher HashingVectorizer "
    "LabelEncoder MaxAbsScaler MinMaxScaler MultiHotEncoder Normalizer OneHotEncoder OrdinalEncoder PowerTransformer "
    "Preprocessor PreprocessorNotFittedException RobustScaler SimpleImputer StandardScaler Tokenizer "
    "TorchVisionPreprocessor UniformKBinsDiscretizer"
)
_AGGREGATES = (
    "AbsMax AggregateFn AggregateFnV2 ApproximateQuantile ApproximateTopK AsList Count CountDistinct Max Mean Min "
    "MissingValuePercentage Quantile Std Sum Unique ValueCounter ZeroPercentage"
)

DATA: dict[str, Module] = {
    "ray.data": module(
        same(_DATA, _NAMES),
        same("trireme.data.preprocessors", "Preprocessor"),
        same("pyarrow", "Schema"),
        refused(
            "read_bigquery read_clickhouse read_databricks_tables read_delta_sharing_tables read_hudi read_kafka "
            "read_lerobot read_mcap read_mongo read_snowflake read_unity_catalog read_zarr",
            "read the source with its own library and pass tables to from_arrow(), or derive from ray.data.Datasource",
        ),
        refused("from_mars from_tf_refs", "convert the data to Arrow or pandas: from_arrow(), from_pandas()"),
        refused("NodeIdStr", "it is a str"),
        refused("set_progress_bars", "DataContext.get_current().enable_progress_bars = False"),
        refused("DatasetPipeline", "Ray has removed it; use Dataset.iter_batches()"),
    ),
    "ray.data.preprocessor": module(same("trireme.data.preprocessors", "Preprocessor PreprocessorNotFittedException")),
    "ray.data.preprocessors": module(same("trireme.data.preprocessors", _PREPROCESSORS)),
    "ray.data.context": module(same(_DATA, "DataContext DatasetContext")),
    "ray.data.dataset": module(same(_DATA, "Dataset MaterializedDataset")),
    "ray.data.iterator": module(same(_DATA, "DataIterator")),
    "ray.data.grouped_data": module(same(_DATA, "GroupedData")),
    "ray.data.collate_fn": module(
        same(_DATA, "ArrowBatchCollateFn CollateFn NumpyBatchCollateFn PandasBatchCollateFn")
    ),
    "ray.data.aggregate": module(same("trireme.data.aggregate", _AGGREGATES)),
    "ray.data.expressions": module(same("trireme.data.expressions", "col lit")),
    "ray.data.datasource": module(
        same(
            "trireme.data.datasource",
            "BlockBasedFileDatasink BlockMetadata Datasink Datasource FileBasedDatasource FileShuffleConfig "
            "PathPartitionFilter ReadTask RowBasedFileDatasink TaskContext WriteResult",
        ),
        same(_DATA, "FilenameProvider SaveMode"),
    ),
    "ray.data.block": module(same("trireme.data.block", "Block BlockAccessor BlockMetadata")),
    "ray.data.exceptions": module(refused("RayDataUserCodeException", "trireme.data.DataError is raised instead")),
}
