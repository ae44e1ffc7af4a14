#include "data/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "data/arrays.h"
#include "data/metadata.h"
#include "data/type_format.h"

namespace trireme::data {
namespace {

std::string_view name_of_field(const ArrowSchema& schema) { return schema.name ? schema.name : ""; }

// Shape of nested lists of fixed size with numbers inside; empty for everything else.
std::vector<std::int64_t> list_shape(const Type& type) {
  std::vector<std::int64_t> shape;
  const Type* inner = &type;
  for (; inner->kind == Kind::kFixedList; inner = &inner->children[0]) shape.push_back(inner->length);
  return element_type(*inner) ? shape : std::vector<std::int64_t>{};
}

// The non-negative integers of a list in the metadata of a tensor.
std::optional<std::vector<std::int64_t>> numbers(const Value* value) {
  const List* list = value ? value->get_if<List>() : nullptr;
  if (!list) return std::nullopt;
  std::vector<std::int64_t> read;
  for (const auto& item : *list) {
    const auto* number = item.get_if<std::int64_t>();
    if (!number || *number < 0) return std::nullopt;
    read.push_back(*number);
  }
  return read;
}

bool in_order(const std::vector<std::int64_t>& permutation) {
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

std::vector<std::int64_t> shape_of(const ArrowSchema& schema, const Type& type) {
  auto lists = list_shape(type);
  if (lists.empty() || find_metadata(schema.metadata, "ARROW:extension:name") != "arrow.fixed_shape_tensor")
    return lists;
  const auto metadata = base::parse_json_dict(find_metadata(schema.metadata, "ARROW:extension:metadata").value_or(""));
  if (!metadata) return lists;
  const auto permutation = numbers(metadata->find("permutation"));
  if (permutation && !in_order(*permutation)) return {};
  auto shape = numbers(metadata->find("shape"));
  std::int64_t elements = 1;
  bool fits = shape.has_value();
  for (std::size_t i = 0; fits && i < shape->size(); ++i) {
    fits = !__builtin_mul_overflow(elements, (*shape)[i], &elements);
  }
  if (!fits || elements != type.length) return lists;
  shape->insert(shape->end(), lists.begin() + 1, lists.end());
  return *shape;
}

// The field names are part of a struct's type; the name of a list's items is not part of the list's type.
base::Result<void> check_same_fields(const ArrowSchema& a, const ArrowSchema& b, const Type& type) {
  if (type.dictionary) {
    Type values = type;
    values.dictionary = false;
    return check_same_fields(*a.dictionary, *b.dictionary, values);
  }
  for (std::size_t i = 0; i < type.children.size(); ++i) {
    const ArrowSchema& ours = *a.children[i];
    const ArrowSchema& theirs = *b.children[i];
    if (type.kind == Kind::kStruct && name_of_field(ours) != name_of_field(theirs)) {
      return base::error("has a field '{}', but '{}' in the others", name_of_field(ours), name_of_field(theirs));
    }
    TRIREME_TRY(check_same_fields(ours, theirs, type.children[i]));
  }
  return {};
}

OwnedSchema copy_resolved(const ArrowSchema& from) {
  const ArrowSchema& values = from.dictionary ? *from.dictionary : from;
  std::vector<OwnedSchema> children;
  for (std::int64_t i = 0; i < values.n_children; ++i) children.push_back(copy_resolved(*values.children[i]));
  OwnedSchema made = make_schema(values.format, std::string(name_of_field(from)), std::move(children),
                                 std::string(metadata_bytes(from.metadata)));
  made->flags = (from.flags | (values.flags & ARROW_FLAG_NULLABLE)) & ~std::int64_t{ARROW_FLAG_DICTIONARY_ORDERED};
  return made;
}

}  // namespace

base::Result<std::shared_ptr<const Schema>> Schema::take(OwnedSchema schema) {
  if (!schema->release) return base::error("the schema of a table was released before it was read");
  const std::shared_ptr<Schema> taken(new Schema);
  taken->c_ = std::move(schema);
  const ArrowSchema& c = *taken->c_;
  if (!c.format || std::string_view(c.format) != "+s" || c.dictionary) {
    return base::error("expected an Arrow struct of columns ('+s') as the table, got '{}'", c.format ? c.format : "");
  }
  if (c.n_children < 0 || (c.n_children > 0 && !c.children)) return base::error("invalid table schema");
  for (std::int64_t i = 0; i < c.n_children; ++i) {
    const ArrowSchema* column = c.children[i];
    if (!column) return base::error("invalid table schema: column {} is missing", i + 1);
    Field field;
    field.name = name_of_field(*column);
    TRIREME_ASSIGN(field.type, parse_type(*column), "column '{}'", field.name);
    field.tensor_shape = shape_of(*column, field.type);
    taken->fields_.push_back(std::move(field));
  }
  return std::shared_ptr<const Schema>(taken);
}

std::optional<std::size_t> Schema::find(std::string_view name) const {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name == name) return i;
  }
  return std::nullopt;
}

base::Result<void> Schema::check_same(const Schema& other) const {
  if (this == &other) return {};
  for (std::size_t i = 0; i < std::max(fields_.size(), other.fields_.size()); ++i) {
    if (i >= other.fields_.size()) return base::error("column '{}' is not in the others", fields_[i].name);
    const Field& theirs = other.fields_[i];
    if (i >= fields_.size()) return base::error("column '{}' is only in the others", theirs.name);
    const Field& ours = fields_[i];
    if (ours.name != theirs.name) {
      if (!find(theirs.name)) return base::error("column '{}' is only in the others", theirs.name);
      if (!other.find(ours.name)) return base::error("column '{}' is not in the others", ours.name);
      return base::error("column {} is '{}', but '{}' in the others", i + 1, ours.name, theirs.name);
    }
    if (ours.type != theirs.type) {
      return base::error("column '{}' is {}, but {} in the others", ours.name, ours.type.text(), theirs.type.text());
    }
    if (ours.tensor_shape != theirs.tensor_shape) {
      return base::error("column '{}' has the shape [{}], but [{}] in the others", ours.name,
                         fmt::join(ours.tensor_shape, ", "), fmt::join(theirs.tensor_shape, ", "));
    }
    auto same = check_same_fields(*c_->children[i], *other.c_->children[i], ours.type);
    if (!same) return base::error("column '{}' {}", ours.name, same.error().message());
  }
  return {};
}

OwnedSchema Schema::exported() const { return copy_resolved(*c_); }

}  // namespace trireme::data
