#include "boosting/feature_stream.h"

#include <utility>

namespace trireme::boosting {
namespace {

struct Stream {
  std::vector<std::unique_ptr<const FeatureColumns>> batches;
  std::vector<std::string> names;
  std::vector<std::string> formats;
  std::size_t next = 0;
};

// A struct of Arrow's C interface with its children, which keep it alive also if a consumer moves them.
template <typename T>
struct Parent {
  std::vector<T> children;
  std::vector<T*> pointers;
};

template <typename T>
void own(T& one, std::shared_ptr<void> owner) {
  one.private_data = new std::shared_ptr<void>(std::move(owner));
  one.release = [](T* self) {
    for (std::int64_t each = 0; each < self->n_children; ++each) {
      if (T* child = self->children[each]; child->release != nullptr) child->release(child);
    }
    delete static_cast<std::shared_ptr<void>*>(self->private_data);
    self->release = nullptr;
  };
}

template <typename T, typename Owner>
void set_children(T& parent, std::vector<T> children, const std::shared_ptr<Owner>& owner) {
  owner->children = std::move(children);
  for (T& child : owner->children) {
    own(child, owner);
    owner->pointers.push_back(&child);
  }
  parent.n_children = static_cast<std::int64_t>(owner->pointers.size());
  parent.children = owner->pointers.data();
  own(parent, owner);
}

struct SchemaOwner : Parent<ArrowSchema> {
  std::vector<std::string> names;
  std::vector<std::string> formats;
};

struct BatchOwner : Parent<ArrowArray> {
  std::unique_ptr<const FeatureColumns> columns;
  const void* validity = nullptr;
};

Stream& stream_of(ArrowArrayStream* self) { return *static_cast<Stream*>(self->private_data); }

int get_schema(ArrowArrayStream* self, ArrowSchema* out) {
  const Stream& stream = stream_of(self);
  auto owner = std::make_shared<SchemaOwner>();
  owner->names = stream.names;
  owner->formats = stream.formats;
  std::vector<ArrowSchema> children;
  for (std::size_t each = 0; each < stream.names.size(); ++each) {
    ArrowSchema child{};
    child.format = owner->formats[each].c_str();
    child.name = owner->names[each].c_str();
    child.flags = ARROW_FLAG_NULLABLE;
    children.push_back(child);
  }
  *out = {};
  out->format = "+s";
  out->name = "";
  set_children(*out, std::move(children), owner);
  return 0;
}

int get_next(ArrowArrayStream* self, ArrowArray* out) {
  Stream& stream = stream_of(self);
  *out = {};
  if (stream.next == stream.batches.size()) return 0;  // the end
  auto owner = std::make_shared<BatchOwner>();
  owner->columns = std::move(stream.batches[stream.next++]);
  std::vector<ArrowArray> children;
  for (const auto& column : owner->columns->columns()) {
    ArrowArray child{};
    child.length = owner->columns->rows();
    child.null_count = column.buffers[0] == nullptr ? 0 : -1;
    child.n_buffers = 2;
    child.buffers = const_cast<const void**>(column.buffers.data());
    children.push_back(child);
  }
  out->length = owner->columns->rows();
  out->n_buffers = 1;
  out->buffers = &owner->validity;
  set_children(*out, std::move(children), owner);
  return 0;
}

}  // namespace

ArrowArrayStream feature_stream(std::vector<std::unique_ptr<const FeatureColumns>> batches,
                                std::vector<std::string> names) {
  auto made = std::make_unique<Stream>();
  for (const auto& column : batches.front()->columns()) made->formats.emplace_back(column.format);
  made->batches = std::move(batches);
  made->names = std::move(names);
  ArrowArrayStream stream{};
  stream.get_schema = &get_schema;
  stream.get_next = &get_next;
  stream.get_last_error = [](ArrowArrayStream*) -> const char* { return nullptr; };
  stream.release = [](ArrowArrayStream* self) {
    delete static_cast<Stream*>(self->private_data);
    self->release = nullptr;
  };
  stream.private_data = made.release();
  return stream;
}

}  // namespace trireme::boosting
