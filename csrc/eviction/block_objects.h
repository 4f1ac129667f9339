// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Reads what the live queue needs from vLLM's Python objects: the id and the
// hash of a block, and whether the hash map holds a second copy. The fields are
// read where their slot descriptors say that they lie in the object; one such
// read costs a nanosecond, the same through the attribute protocol thirty. Where
// a class has no slots the attribute protocol is used.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstring>

#include "types.h"

namespace eviction {

namespace nb = nanobind;

// The key of a block hash with its group id appended (four bytes, big-endian),
// as vLLM stores it in a block. Hashes are uniform already, so eight bytes of one
// are a key; the group is mixed in by an odd factor.
inline Key key_of_hash(const char* hash, std::size_t size, std::uint64_t group) {
  std::uint64_t key = 0;
  if (size >= sizeof(key)) {
    std::memcpy(&key, hash, sizeof(key));
  } else {  // no hash function in use makes such short ones; tests do
    key = 0xcbf29ce484222325ull;
    for (std::size_t i = 0; i < size; ++i) key = (key ^ static_cast<unsigned char>(hash[i])) * 0x100000001b3ull;
  }
  key ^= group * 0x9e3779b97f4a7c15ull;
  return key == kNoKey ? 1 : key;
}

inline std::pair<const char*, std::size_t> bytes_of(nb::handle hash) {
  if (!PyBytes_Check(hash.ptr())) throw nb::type_error("a block hash must be bytes");
  return {PyBytes_AS_STRING(hash.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(hash.ptr()))};
}

// Of a hash as blocks store it; kNoKey for None.
inline Key key_of_block_hash(nb::handle hash) {
  constexpr std::size_t kGroupBytes = 4;
  if (hash.is_none()) return kNoKey;
  const auto [bytes, size] = bytes_of(hash);
  if (size < kGroupBytes) return key_of_hash(bytes, size, 0);
  std::uint64_t group = 0;
  for (std::size_t i = size - kGroupBytes; i < size; ++i) group = group << 8 | static_cast<unsigned char>(bytes[i]);
  return key_of_hash(bytes, size - kGroupBytes, group);
}

// Of a hash as requests store it, without a group.
inline Key key_of_request_hash(nb::handle hash, std::uint64_t group) {
  const auto [bytes, size] = bytes_of(hash);
  return key_of_hash(bytes, size, group);
}

// One attribute of one class.
class Field {
 public:
  Field(nb::handle type, const char* name) : name_(nb::steal(PyUnicode_InternFromString(name))), type_(type.ptr()) {
    nb::object descriptor = nb::getattr(type, name, nb::none());
    if (Py_TYPE(descriptor.ptr()) == &PyMemberDescr_Type) {
      const PyMemberDef* member = reinterpret_cast<PyMemberDescrObject*>(descriptor.ptr())->d_member;
      if (member->type == T_OBJECT_EX) offset_ = member->offset;
    }
  }

  nb::object operator()(nb::handle object) const {
    if (offset_ > 0 && reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) == type_) {
      PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.ptr()) + offset_);
      if (value != nullptr) return nb::borrow(value);
    }
    PyObject* value = PyObject_GetAttr(object.ptr(), name_.ptr());
    if (value == nullptr) throw nb::python_error();
    return nb::steal(value);
  }

 private:
  nb::object name_;
  PyObject* type_;
  Py_ssize_t offset_ = 0;
};

// The fields of vLLM's KVCacheBlock.
class BlockReader {
 public:
  explicit BlockReader(nb::handle block_type)
      : id_(block_type, "block_id"), hash_(block_type, "_block_hash"), depth_(block_type, "_block_hash_num_tokens") {}

  Slot slot(nb::handle block) const {
    const long id = PyLong_AsLong(id_(block).ptr());
    if (id < 0) {
      if (PyErr_Occurred()) throw nb::python_error();
      throw nb::value_error("a block id must not be negative");
    }
    return static_cast<Slot>(id);
  }
  nb::object hash(nb::handle block) const { return hash_(block); }
  void prefetch_hash(nb::handle block) const { __builtin_prefetch(hash_(block).ptr()); }
  std::uint32_t depth(nb::handle block) const {
    const nb::object tokens = depth_(block);
    return tokens.is_none() ? 0 : static_cast<std::uint32_t>(PyLong_AsLong(tokens.ptr()));
  }

 private:
  Field id_;
  Field hash_;
  Field depth_;
};

// vLLM's map from hashes to blocks: a hash that stands in several blocks maps to
// a dict of them. `BlockPool.reset_prefix_cache` puts a new map in place.
class HashMap {
 public:
  explicit HashMap(nb::object block_pool) : pool_(std::move(block_pool)) { refresh(); }

  // True when the pool has another map than before: all contents are gone.
  bool refresh() {
    nb::object map = pool_.attr("cached_block_hash_to_block");
    if (map.is(map_)) return false;
    const bool replaced = map_.is_valid();
    blocks_ = map.attr("_cache");
    if (!PyDict_Check(blocks_.ptr())) throw nb::type_error("the pool's hash map holds no dict");
    map_ = std::move(map);
    return replaced;
  }

  // For Python's cycle collector: the pool holds the queue that holds the pool.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(pool_.ptr());
    Py_VISIT(map_.ptr());
    Py_VISIT(blocks_.ptr());
    return 0;
  }
  void clear() {
    pool_.reset();
    map_.reset();
    blocks_.reset();
  }

  // How many blocks hold the content; it counts as one when it is not in the map.
  std::uint32_t copies(nb::handle hash) const {
    PyObject* entry = PyDict_GetItemWithError(blocks_.ptr(), hash.ptr());
    return entry != nullptr && PyDict_Check(entry) ? static_cast<std::uint32_t>(PyDict_GET_SIZE(entry)) : 1;
  }

 private:
  nb::object pool_;
  nb::object map_;
  nb::object blocks_;
};

}  // namespace eviction
