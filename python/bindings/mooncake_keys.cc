#include "bindings/mooncake_keys.h"

#include <algorithm>
#include <cstring>

#include "tenure/kv/hex.h"
#include "tenure/kv/key_format.h"

namespace tenure::python {

MooncakePrefix::MooncakePrefix(std::string prefix)
    : text(std::move(prefix)),
      is_ascii(std::all_of(text.begin(), text.end(), [](char letter) { return static_cast<uint8_t>(letter) < 0x80; })) {
}

PyObject* MooncakeKey::ToPython() const {
  if (!prefix->is_ascii) {
    const std::string text = kv::KeyText(prefix->text, hash);
    return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  }
  PyObject* const str = PyUnicode_New(static_cast<Py_ssize_t>(kv::KeyTextSize(prefix->text, hash)), 127);
  if (str != nullptr) kv::WriteKeyText(prefix->text, hash, static_cast<char*>(PyUnicode_DATA(str)));
  return str;
}

PyObject* MooncakeKeys::ToPython() const {
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(size()));
  if (list == nullptr) return nullptr;
  for (size_t i = 0; i < size(); ++i) {
    PyObject* const text = keys_[i].ToPython();
    if (text == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), text);
  }
  return list;
}

}  // namespace tenure::python
