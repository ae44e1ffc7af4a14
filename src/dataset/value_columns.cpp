#include "value_columns.h"

#include <arrow/array/builder_base.h>
#include <arrow/array/builder_binary.h>
#include <arrow/array/builder_nested.h>
#include <arrow/array/builder_primitive.h>
#include <arrow/builder.h>

#include <algorithm>

#include "tensor_columns.h"

namespace trireme::arrow {
namespace {

using ::arrow::Status;
using TypePointer = std::shared_ptr<::arrow::DataType>;
using ::arrow::Type;

bool is_missing(const Value* value) { return !value || value->is_null(); }

::arrow::Result<TypePointer> merged(const TypePointer& a, const TypePointer& b);

::arrow::Result<TypePointer> merged_structs(const ::arrow::DataType& a, const ::arrow::DataType& b) {
  ::arrow::FieldVector fields = a.fields();
  for (const auto& field : b.fields()) {
    const auto there = std::find_if(fields.begin(), fields.end(), [&](auto& f) { return f->name() == field->name(); });
    if (there == fields.end()) {
      fields.push_back(field);
    } else {
      ARROW_ASSIGN_OR_RAISE(auto type, merged((*there)->type(), field->type()));
      *there = ::arrow::field(field->name(), std::move(type));
    }
  }
  return ::arrow::struct_(std::move(fields));
}

::arrow::Result<TypePointer> merged(const TypePointer& a, const TypePointer& b) {
  if (a->Equals(b) || b->id() == Type::NA) return a;
  if (a->id() == Type::NA) return b;
  const auto number = [](const TypePointer& type) { return type->id() == Type::INT64 || type->id() == Type::DOUBLE; };
  if (number(a) && number(b)) return ::arrow::float64();
  if (a->id() == Type::LIST && b->id() == Type::LIST) {
    ARROW_ASSIGN_OR_RAISE(auto type, merged(a->field(0)->type(), b->field(0)->type()));
    return ::arrow::list(std::move(type));
  }
  if (a->id() == Type::STRUCT && b->id() == Type::STRUCT) return merged_structs(*a, *b);
  return Status::Invalid("one value is ", a->ToString(), " and another is ", b->ToString(), ": all need the same type");
}

::arrow::Result<TypePointer> type_of(const Value& value) {
  if (value.is_null()) return ::arrow::null();
  if (value.get_if<bool>()) return ::arrow::boolean();
  if (value.get_if<std::int64_t>()) return ::arrow::int64();
  if (value.get_if<double>()) return ::arrow::float64();
  if (value.get_if<std::string>()) return ::arrow::utf8();
  if (value.get_if<Bytes>()) return ::arrow::binary();
  if (const auto* list = value.get_if<List>()) {
    TypePointer type = ::arrow::null();
    for (const auto& each : *list) {
      ARROW_ASSIGN_OR_RAISE(auto next, type_of(each));
      ARROW_ASSIGN_OR_RAISE(type, merged(type, next));
    }
    return ::arrow::list(std::move(type));
  }
  const auto* dict = value.get_if<Dict>();
  if (!dict) return Status::Invalid("tensors nested in other values are not supported");
  ::arrow::FieldVector fields;
  for (const auto& [key, each] : *dict) {
    ARROW_ASSIGN_OR_RAISE(auto type, type_of(each));
    fields.push_back(::arrow::field(key, std::move(type)));
  }
  return ::arrow::struct_(std::move(fields));
}

::arrow::Result<std::shared_ptr<::arrow::Field>> infer_tensors(const std::string& name, const ValuePointers& rows) {
  const Tensor* first = nullptr;
  bool same = true;
  bool vectors = true;
  for (const auto* row : rows) {
    same = same && !is_missing(row);
    if (is_missing(row)) continue;
    const auto* tensor = row->get_if<Tensor>();
    if (!tensor) return Status::Invalid("some values are arrays and some are not");
    if (!first) first = tensor;
    if (tensor->dtype() != first->dtype()) {
      return Status::Invalid("one value is ", tensor_text(first->dtype(), first->shape()), " and another is ",
                             tensor_text(tensor->dtype(), tensor->shape()));
    }
    same = same && tensor->shape() == first->shape();
    vectors = vectors && tensor->shape().size() == 1;
  }
  if (same || first->shape().empty()) return ::arrow::field(name, tensor_type(first->dtype(), first->shape()));
  if (vectors) return ::arrow::field(name, ::arrow::list(arrow_type(first->dtype())));
  return ragged_field(name, first->dtype());
}

Status append(::arrow::ArrayBuilder& builder, const Value* value);

Status unfit(const ::arrow::ArrayBuilder& builder, const Value& value) {
  const auto type = type_of(value);
  return Status::Invalid("a value is ", type.ok() ? (*type)->ToString() : "an array", ", but ",
                         builder.type()->ToString(), " in the first rows");
}

Status append_struct(::arrow::StructBuilder& builder, const Dict& dict) {
  ARROW_RETURN_NOT_OK(builder.Append());
  const auto type = builder.type();
  const auto& fields = type->fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    ARROW_RETURN_NOT_OK(append(*builder.child(static_cast<int>(i)), dict.find(fields[i]->name())));
  }
  for (const auto& [key, value] : dict) {
    if (std::none_of(fields.begin(), fields.end(), [&](const auto& field) { return field->name() == key; })) {
      return Status::Invalid("it has '", key, "', which is not in the first rows (", type->ToString(), ")");
    }
  }
  return Status::OK();
}

Status append(::arrow::ArrayBuilder& builder, const Value* value) {
  if (is_missing(value)) return builder.AppendNull();
  switch (builder.type()->id()) {
    case Type::BOOL:
      if (const auto* flag = value->get_if<bool>()) return static_cast<::arrow::BooleanBuilder&>(builder).Append(*flag);
      break;
    case Type::INT64:
      if (const auto* number = value->get_if<std::int64_t>()) {
        return static_cast<::arrow::Int64Builder&>(builder).Append(*number);
      }
      break;
    case Type::DOUBLE:
      if (value->get_if<double>() || value->get_if<std::int64_t>()) {
        return static_cast<::arrow::DoubleBuilder&>(builder).Append(value->as_double());
      }
      break;
    case Type::STRING:
      if (const auto* text = value->get_if<std::string>()) {
        return static_cast<::arrow::StringBuilder&>(builder).Append(*text);
      }
      break;
    case Type::BINARY:
      if (const auto* bytes = value->get_if<Bytes>()) {
        return static_cast<::arrow::BinaryBuilder&>(builder).Append(bytes->data);
      }
      break;
    case Type::LIST:
      if (const auto* list = value->get_if<List>()) {
        auto& lists = static_cast<::arrow::ListBuilder&>(builder);
        ARROW_RETURN_NOT_OK(lists.Append());
        for (const auto& each : *list) ARROW_RETURN_NOT_OK(append(*lists.value_builder(), &each));
        return Status::OK();
      }
      break;
    case Type::STRUCT:
      if (const auto* dict = value->get_if<Dict>()) {
        return append_struct(static_cast<::arrow::StructBuilder&>(builder), *dict);
      }
      break;
    default: break;
  }
  return unfit(builder, *value);
}

::arrow::Result<std::shared_ptr<::arrow::Array>> build_tensors(const ::arrow::Field& field, const ValuePointers& rows) {
  std::vector<const Tensor*> tensors;
  for (const auto* row : rows) {
    tensors.push_back(is_missing(row) ? nullptr : row->get_if<Tensor>());
    const Tensor* tensor = tensors.back();
    if (!tensor && is_missing(row)) continue;
    if (!tensor) return Status::Invalid("some values are arrays and some are not");
    const bool list = field.type()->id() == Type::LIST;
    const auto type = is_ragged(field) ? ragged_field("", tensor->dtype())->type()
                      : list           ? ::arrow::list(arrow_type(tensor->dtype()))
                                       : tensor_type(tensor->dtype(), tensor->shape());
    if (!field.type()->Equals(type) || (list && tensor->shape().size() != 1)) {
      return Status::Invalid("a value is ", tensor_text(tensor->dtype(), tensor->shape()), ", but ",
                             field.type()->ToString(), " in the first rows");
    }
  }
  return tensor_column(field, tensors);
}

bool has_tensors(const ValuePointers& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const auto* row) { return row && row->template get_if<Tensor>(); });
}

}  // namespace

::arrow::Result<std::shared_ptr<::arrow::Field>> infer_column(const std::string& name, const ValuePointers& rows) {
  if (has_tensors(rows)) return infer_tensors(name, rows);
  TypePointer type = ::arrow::null();
  for (const auto* row : rows) {
    if (is_missing(row)) continue;
    ARROW_ASSIGN_OR_RAISE(auto next, type_of(*row));
    ARROW_ASSIGN_OR_RAISE(type, merged(type, next));
  }
  return ::arrow::field(name, std::move(type));
}

::arrow::Result<std::shared_ptr<::arrow::Array>> build_column(const ::arrow::Field& field, const ValuePointers& rows) {
  if (has_tensors(rows)) return build_tensors(field, rows);
  std::unique_ptr<::arrow::ArrayBuilder> builder;
  ARROW_RETURN_NOT_OK(::arrow::MakeBuilder(::arrow::default_memory_pool(), field.type(), &builder));
  for (const auto* row : rows) ARROW_RETURN_NOT_OK(append(*builder, row));
  return builder->Finish();
}

}  // namespace trireme::arrow
