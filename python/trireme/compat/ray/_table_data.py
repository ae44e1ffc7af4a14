"""ray.data: Trireme's datasets have Ray's names."""

from __future__ import annotations

from trireme.compat.ray._names import Module, adapted, inside, module, refused, refused_module, same

_DATA = "trireme.data"
_NAMES = (
    "ActorPoolStrategy ArrowBatchCollateFn BlockBasedFileDatasink BlockMetadata CollateFn DataContext DataIterator "
    "Dataset DatasetContext DatasetIterator DatasetSummary Datasink Datasource ExecutionOptions ExecutionResources "
    "FileShuffleConfig FilenameProvider MaterializedDataset MixStoppingCondition "
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
    "AggregateFn AggregateFnV2 ApproximateQuantile ApproximateTopK AsList Count CountDistinct Mean "
    "MissingValuePercentage Quantile Std Sum ValueCounter ZeroPercentage"
)
_CLASSES = "trireme.compat.ray._data_classes"

_NO_CATALOG = "read the table with the library of the catalog, or by its path"

_PACKAGES: dict[str, Module] = {
    "ray.data": module(
        same(_DATA, _NAMES),
        adapted(_CLASSES, "FileBasedDatasource", "without schema and meta_provider"),
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
        refused(
            "Catalog CatalogAccessMode ClickHouseTableSettings DatabricksUnityCatalog KafkaAuthConfig ReaderFormat "
            "ResolvedSource SinkMode",
            _NO_CATALOG,
        ),
        refused("list_stats_summaries", "Dataset.stats() describes a dataset"),
        refused("DatasetPipeline", "Ray has removed it; use Dataset.iter_batches()"),
    ),
    "ray.data.preprocessor": module(
        same("trireme.data.preprocessors", "Preprocessor PreprocessorNotFittedException"),
        refused("SerializablePreprocessorBase SerializationFormat", "derive from Preprocessor, which can be pickled"),
    ),
    "ray.data.preprocessors": module(same("trireme.data.preprocessors", _PREPROCESSORS)),
    "ray.data.context": module(
        same(_DATA, "DataContext DatasetContext"),
        refused(
            "AutoscalingConfig DeltaConfig IcebergConfig LanceConfig ShuffleStrategy",
            "it sets up Ray's executor, which does not run here; docs/data.md lists what Trireme has",
        ),
    ),
    "ray.data.dataset": module(same(_DATA, "Dataset MaterializedDataset"), same("pyarrow", "Schema")),
    "ray.data.iterator": module(same(_DATA, "DataIterator DatasetIterator")),
    "ray.data.grouped_data": module(same(_DATA, "GroupedData")),
    "ray.data.collate_fn": module(
        same(_DATA, "ArrowBatchCollateFn CollateFn NumpyBatchCollateFn PandasBatchCollateFn")
    ),
    "ray.data.aggregate": module(
        same("trireme.data.aggregate", _AGGREGATES),
        adapted(_CLASSES, "AbsMax Max Min", "zero_factory has no effect"),
        adapted(_CLASSES, "Unique", "without encode_lists"),
    ),
    "ray.data.expressions": module(
        same("trireme.data.expressions", "col lit"),
        refused(
            "AliasExpr BinaryExpr ColumnExpr DownloadExpr Expr LiteralExpr MonotonicallyIncreasingIdExpr Operation "
            "RandomExpr StarExpr UDFExpr UUIDExpr UnaryExpr UnnestExpr download monotonically_increasing_id "
            "pyarrow_udf random star udf unnest uuid",
            "use Dataset.add_column() or map_batches() with a function",
        ),
    ),
    "ray.data.datasource": module(
        same(
            "trireme.data.datasource",
            "BlockBasedFileDatasink BlockMetadata Datasink Datasource FileShuffleConfig ReadTask "
            "RowBasedFileDatasink TaskContext WriteResult",
        ),
        same(_DATA, "FilenameProvider SaveMode"),
        adapted(_CLASSES, "FileBasedDatasource", "without schema and meta_provider"),
        adapted(_CLASSES, "PathPartitionFilter", "by PathPartitionFilter.of(), for hive partitions"),
        refused(
            "BaseFileMetadataProvider DefaultFileMetadataProvider FileMetadataProvider PartitionStyle Partitioning "
            "PathPartitionParser Reader",
            "pass partitioning='hive' or PathPartitionFilter to the reader",
        ),
        refused(
            "Connection DeltaSharingDatasource DummyOutputDatasink LeRobotDatasource MCAPDatasource "
            "RandomIntRowDatasource TimeRange TurbopufferDatasink WriteReturnType",
            "derive from Datasource or Datasink",
        ),
    ),
    "ray.data.block": module(same("trireme.data.block", "Block BlockAccessor BlockMetadata")),
    "ray.data.exceptions": module(
        refused(
            "ExecutionTimeoutError RayDataUserCodeException SystemException UserCodeException",
            "trireme.data.DataError is raised instead",
        )
    ),
    # Modules of Ray's executor and its types.
    "ray.data.catalog": refused_module(_NO_CATALOG),
    "ray.data.checkpoint": refused_module("the position of a dataset is part of every checkpoint of a training"),
    "ray.data.datatype": refused_module("use pyarrow's types"),
    "ray.data.extensions": refused_module("tensors are pyarrow.FixedShapeTensorArray, or lists of their type"),
    "ray.data.namespace_expressions": refused_module("use Dataset.map_batches() with a function"),
    "ray.data.random_access_dataset": refused_module("use Dataset.to_pandas() and an index"),
}

DATA: dict[str, Module] = {
    **_PACKAGES,
    **inside("ray.data", _PACKAGES["ray.data"], "read_api"),
    **inside(
        "ray.data.preprocessors",
        _PACKAGES["ray.data.preprocessors"],
        "chain concatenator discretizer encoder hasher imputer normalizer scaler tokenizer torch transformer "
        "vectorizer",
    ),
    **inside(
        "ray.data.datasource",
        _PACKAGES["ray.data.datasource"],
        "datasink datasource file_based_datasource file_datasink file_meta_provider filename_provider partitioning",
    ),
}
