#include <trireme/arrow/data.h>
#include <trireme/trireme.h>

#include <cstdint>
#include <iostream>

// Inspects a dataset before training: the number of rows and the statistics of each class. group_by() returns a dataset
// with one row per group, which can be filtered, joined, written or used for training.

namespace data = trireme::data;

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const auto measured = data::range(1000).map([](const trireme::Dict& row) -> trireme::Dict {
    const auto id = row["id"].get<std::int64_t>();
    return {{"label", id % 3}, {"x", static_cast<double>(id) / 10}};
  });

  const auto groups = data::group_by(
      measured, {"label"}, {data::count_rows("rows"), {"x", "mean"}, {"x", "std", "spread"}, {"x", "max", "largest"}});
  for (const auto& row : groups.take_all()) {
    std::cout << "label " << row["label"].get<int>() << ": " << row["rows"].get<int>() << " rows, x is "
              << row["mean(x)"].get<double>() << " on average, at most " << row["largest"].get<double>() << "\n";
  }

  // Without keys: one row for the whole dataset.
  const auto all = data::group_by(measured, {}, {data::count_rows(), {"x", "sum"}}).take(1)[0];
  std::cout << all["count()"].get<int>() << " rows, the sum of x is " << all["sum(x)"].get<double>() << "\n";

  // A join with the large groups drops the rows of rare ones.
  const auto large = groups.filter("rows > 333").select_columns({"label"});
  std::cout << data::join(measured, large, {"label"}, "inner").count() << " rows have a label that is not rare\n";
}
