from __future__ import annotations

from typing import Any

PREDICTIONS = "predictions"


def predicted_dataset(
    dataset: Any, predictor: type, arguments: dict[str, Any], batch_size: int, concurrency: Any
) -> Any:
    from trireme.data._trainer_datasets import _dataset_of

    column = arguments["column"]
    made = _dataset_of("predict", dataset)
    if column in made.columns():
        raise ValueError(f"predict(output_column={column!r}): the dataset has this column already; choose another name")
    return made.map_batches(
        predictor,
        batch_size=batch_size,
        batch_format="pyarrow",
        fn_constructor_kwargs=arguments,
        concurrency=concurrency,
        udf_modifying_row_count=False,
    )
