#include "data/arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>

#include "data/array_buffers.h"
#include "data/type_format.h"

namespace trireme::data {
namespace {

// Owner of the memory of our schema or array; destroyed by its release callback.
struct MadeSchema {
  std::string format;
  std::string name;
  std::string metadata;
  std::vector<OwnedSchema> children;
  std::vector<ArrowSchema*> pointers;
};

struct MadeArray {
  std::vector<const void*> buffers;
  std::vector<std::shared_ptr<const void>> owners;
  std::vector<OwnedArray> children;
  std::vector<ArrowArray*> pointers;
};

template <typename Parts, typename C>
void release(C* c) {
  delete static_cast<Parts*>(c->private_data);
  c->release = nullptr;
}

template <typename Parts>
auto** pointers_of(Parts& parts) {
  for (auto& child : parts.children) parts.pointers.push_back(&*child);
  return parts.pointers.data();
}

struct Renamed {
  OwnedSchema inner;
  std::string name;
};

struct WithMetadata {
  OwnedSchema inner;
  std::string metadata;
};

template <typename C>
struct WithDictionary {
  Owned<C> inner;
  Owned<C> values;
};

template <typename C>
Owned<C> paired(Owned<C> indices, Owned<C> values) {
  auto parts = std::make_unique<WithDictionary<C>>(WithDictionary<C>{std::move(indices), std::move(values)});
  C outer = *parts->inner;
  outer.dictionary = &*parts->values;
  outer.release = release<WithDictionary<C>, C>;
  outer.private_data = parts.release();
  return Owned<C>(outer);
}

struct Producing {
  std::unique_ptr<ArrayProducer> producer;
  std::string error;

  template <typename C>
  int give(base::Result<Owned<C>> made, C* out) {
    *out = made ? made->give() : C{};
    if (made) return 0;
    error = made.error().message();
    return producer->may_pass() ? EIO : EINVAL;
  }
};

Producing& producing(ArrowArrayStream* stream) { return *static_cast<Producing*>(stream->private_data); }

class Batches final : public ArrayProducer {
 public:
  explicit Batches(std::vector<Batch> batches) : batches_(std::move(batches)) {}

  base::Result<OwnedSchema> schema() override { return batches_.front().schema()->exported(); }

  base::Result<OwnedArray> next() override {
    if (given_ == batches_.size()) return OwnedArray();
    return batches_[given_++].exported().array;
  }

 private:
  std::vector<Batch> batches_;
  std::size_t given_ = 0;
};

}  // namespace

// Arrow's encoding: the number of pairs, then the length and bytes of each key and value.
std::string metadata_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string bytes;
  const auto append = [&](std::size_t number) {
    const auto value = static_cast<std::int32_t>(number);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(pairs.size());
  for (const auto& [key, value] : pairs) {
    for (const auto* text : {&key, &value}) {
      append(text->size());
      bytes += *text;
    }
  }
  return bytes;
}

OwnedSchema make_schema(std::string format, std::string name, std::vector<OwnedSchema> children, std::string metadata) {
  auto parts = std::make_unique<MadeSchema>();
  parts->format = std::move(format);
  parts->name = std::move(name);
  parts->metadata = std::move(metadata);
  parts->children = std::move(children);
  ArrowSchema schema{};
  schema.format = parts->format.c_str();
  schema.name = parts->name.c_str();
  schema.metadata = parts->metadata.empty() ? nullptr : parts->metadata.data();
  schema.flags = ARROW_FLAG_NULLABLE;
  schema.n_children = static_cast<std::int64_t>(parts->children.size());
  schema.children = pointers_of(*parts);
  schema.release = release<MadeSchema, ArrowSchema>;
  schema.private_data = parts.release();
  return OwnedSchema(schema);
}

OwnedSchema renamed(OwnedSchema schema, std::string name) {
  auto parts = std::make_unique<Renamed>(Renamed{std::move(schema), std::move(name)});
  ArrowSchema outer = *parts->inner;
  outer.name = parts->name.c_str();
  outer.release = release<Renamed, ArrowSchema>;
  outer.private_data = parts.release();
  return OwnedSchema(outer);
}

OwnedSchema as_tensors(OwnedSchema lists, const std::vector<std::int64_t>& shape) {
  auto parts = std::make_unique<WithMetadata>(WithMetadata{
      std::move(lists),
      metadata_of({{"ARROW:extension:name", "arrow.fixed_shape_tensor"},
                   {"ARROW:extension:metadata", fmt::format("{{\"shape\":[{}]}}", fmt::join(shape, ","))}})});
  ArrowSchema outer = *parts->inner;
  outer.metadata = parts->metadata.c_str();
  outer.release = release<WithMetadata, ArrowSchema>;
  outer.private_data = parts.release();
  return OwnedSchema(outer);
}

OwnedSchema with_dictionary(OwnedSchema indices, OwnedSchema values) {
  return paired(std::move(indices), std::move(values));
}
OwnedArray with_dictionary(OwnedArray indices, OwnedArray values) {
  return paired(std::move(indices), std::move(values));
}

OwnedArray make_array(std::int64_t length, std::int64_t null_count, std::vector<const void*> buffers,
                      std::vector<std::shared_ptr<const void>> owners, std::vector<OwnedArray> children) {
  auto parts = std::make_unique<MadeArray>();
  parts->buffers = std::move(buffers);
  parts->owners = std::move(owners);
  parts->children = std::move(children);
  ArrowArray array{};
  array.length = length;
  array.null_count = null_count;
  array.n_buffers = static_cast<std::int64_t>(parts->buffers.size());
  array.buffers = parts->buffers.data();
  array.n_children = static_cast<std::int64_t>(parts->children.size());
  array.children = pointers_of(*parts);
  array.release = release<MadeArray, ArrowArray>;
  array.private_data = parts.release();
  return OwnedArray(array);
}

OwnedArray export_array(const Type& type, const Array& array, const std::shared_ptr<const void>& owner) {
  std::vector<const void*> buffers{array.validity.data(), array.values.data(), array.text.data()};
  buffers.resize(static_cast<std::size_t>(buffer_count(type.kind)));
  std::vector<OwnedArray> children;
  for (std::size_t i = 0; i < array.children.size(); ++i) {
    children.push_back(export_array(type.children[i], array.children[i], owner));
  }
  return make_array(array.length, array.null_count, std::move(buffers), {owner}, std::move(children));
}

Record record_of(std::vector<RecordColumn> columns, std::int64_t rows) {
  std::vector<OwnedSchema> schemas;
  std::vector<OwnedArray> arrays;
  for (auto& column : columns) {
    schemas.push_back(std::move(column.schema));
    arrays.push_back(std::move(column.array));
  }
  return {make_array(rows, 0, {nullptr}, {}, std::move(arrays)), make_schema("+s", "", std::move(schemas))};
}

std::vector<RecordColumn> split(Record record) {
  std::vector<RecordColumn> columns;
  for (std::int64_t i = 0; i < record.schema->n_children; ++i) {
    // Moving the struct moves the child out; the original counts as released.
    columns.push_back({OwnedSchema(*record.schema->children[i]), OwnedArray(*record.array->children[i])});
  }
  return columns;
}

base::Result<Batch> batch_of(Record record) {
  TRIREME_ASSIGN(auto schema, data::Schema::take(std::move(record.schema)));
  if (record.array->length == 0) return Batch::empty(std::move(schema));
  TRIREME_ASSIGN(std::shared_ptr<const data::Chunk> chunk,
                 data::Chunk::take(std::move(record.array), std::move(schema)));
  const data::Run all{0, 0, chunk->rows()};
  return Batch::gather({&chunk, 1}, {&all, 1});
}

OwnedStream make_stream(std::unique_ptr<ArrayProducer> producer) {
  ArrowArrayStream stream{};
  stream.get_schema = [](ArrowArrayStream* self, ArrowSchema* out) {
    return producing(self).give(producing(self).producer->schema(), out);
  };
  stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) {
    return producing(self).give(producing(self).producer->next(), out);
  };
  stream.get_last_error = [](ArrowArrayStream* self) { return producing(self).error.c_str(); };
  stream.release = release<Producing, ArrowArrayStream>;
  stream.private_data = new Producing{std::move(producer), ""};
  return OwnedStream(stream);
}

OwnedStream stream_of(std::vector<Batch> batches) { return make_stream(std::make_unique<Batches>(std::move(batches))); }

}  // namespace trireme::data
