#include <algorithm>
#include <functional>
#include <set>

#include "base/text.h"
#include "plan/ops.h"

namespace trireme::plan {
namespace {

// A column that is kept, and its new name.
struct Kept {
  std::size_t column = 0;
  std::string name;
};
using Choose = std::function<base::Result<std::vector<Kept>>(const data::Schema& columns)>;

class ColumnOp final : public Op {
 public:
  ColumnOp(std::string name, Choose choose) : name_(std::move(name)), choose_(std::move(choose)) {}

  std::string name() const override { return name_; }

  base::Result<std::shared_ptr<const data::Schema>> learn(const data::Batch& example) override {
    TRIREME_ASSIGN(kept_, choose_(*example.schema()));
    std::set<std::string> names;
    for (const auto& each : kept_) {
      if (!names.insert(each.name).second) return base::error("more than one column would be named '{}'", each.name);
    }
    return data::Schema::take(kept_of(example).schema);
  }

  base::Result<Record> apply(const data::Batch& batch, Where) override { return kept_of(batch); }
  std::unique_ptr<Op> again() const override { return std::make_unique<ColumnOp>(name_, choose_); }

 private:
  Record kept_of(const data::Batch& batch) const {
    auto columns = split(batch.exported());
    std::vector<RecordColumn> kept;
    for (const auto& [column, name] : kept_) {
      kept.push_back({renamed(std::move(columns[column].schema), name), std::move(columns[column].array)});
    }
    return record_of(std::move(kept), batch.rows());
  }

  std::string name_;
  Choose choose_;
  std::vector<Kept> kept_;  // written by learn(), before the first apply()
};

base::Result<std::size_t> find(const data::Schema& schema, const std::string& name) {
  if (auto found = schema.find(name)) return *found;
  std::vector<std::string> names;
  for (const auto& field : schema.fields()) names.push_back(field.name);
  return base::error("no column named '{}'{} (columns: {})", name, base::did_you_mean(name, names),
                     base::join(names, ", "));
}

std::unique_ptr<Op> column_op(std::string name, Choose choose) {
  return std::make_unique<ColumnOp>(std::move(name), std::move(choose));
}

}  // namespace

std::unique_ptr<Op> select_op(std::vector<std::string> columns) {
  return column_op(fmt::format("select_columns({})", base::join(columns, ", ")),
                   [columns](const data::Schema& schema) -> base::Result<std::vector<Kept>> {
                     std::vector<Kept> kept;
                     for (const auto& name : columns) {
                       TRIREME_ASSIGN(const std::size_t column, find(schema, name));
                       kept.push_back({column, name});
                     }
                     return kept;
                   });
}

std::unique_ptr<Op> drop_op(std::vector<std::string> columns) {
  return column_op(fmt::format("drop_columns({})", base::join(columns, ", ")),
                   [columns](const data::Schema& schema) -> base::Result<std::vector<Kept>> {
                     for (const auto& name : columns) TRIREME_TRY(find(schema, name));
                     std::vector<Kept> kept;
                     for (std::size_t i = 0; i < schema.fields().size(); ++i) {
                       const auto& name = schema.fields()[i].name;
                       if (std::find(columns.begin(), columns.end(), name) == columns.end()) kept.push_back({i, name});
                     }
                     return kept;
                   });
}

std::unique_ptr<Op> rename_op(std::map<std::string, std::string> names) {
  return column_op("rename_columns()", [names](const data::Schema& schema) -> base::Result<std::vector<Kept>> {
    for (const auto& [old, name] : names) TRIREME_TRY(find(schema, old));
    std::vector<Kept> kept;
    for (std::size_t i = 0; i < schema.fields().size(); ++i) {
      const auto& old = schema.fields()[i].name;
      const auto found = names.find(old);
      kept.push_back({i, found == names.end() ? old : found->second});
    }
    return kept;
  });
}

}  // namespace trireme::plan
