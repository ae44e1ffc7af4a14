"""Preprocessors and operations of ray.data in the driver."""

import ray.data
from compat_record import record
from ray.data.preprocessors import Chain, Concatenator, LabelEncoder, MinMaxScaler, StandardScaler

if __name__ == "__main__":
    rows = [{"a": float(i), "b": float(i * i), "label": "xy"[i % 2]} for i in range(8)]
    dataset = ray.data.from_items(rows)
    train, test = dataset.train_test_split(test_size=0.25)
    chain = Chain(
        StandardScaler(columns=["a"]),
        MinMaxScaler(columns=["b"]),
        LabelEncoder("label"),
        Concatenator(columns=["a", "b"], output_column_name="features"),
    )
    chain.fit(train)
    encoded = [[list(map(float, row["features"])), int(row["label"])] for row in chain.transform(test).take_all()]
    grouped = sorted((row["label"], row["sum(a)"]) for row in dataset.groupby("label").sum("a").take_all())
    record(
        train=train.count(),
        test=test.count(),
        encoded=encoded,
        grouped=grouped,
        mean=dataset.mean("b"),
        columns=sorted(dataset.drop_columns(["b"]).columns()),
        added=[row["c"] for row in dataset.add_column("c", lambda frame: frame["a"] * 2).take(3)],
        filtered=dataset.filter(lambda row: row["a"] > 4).count(),
        sorted=[row["a"] for row in dataset.sort("a", descending=True).take(2)],
    )
