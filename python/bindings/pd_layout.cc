#include "bindings/pd_layout.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "tenure/base/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

pd::HeadSplit HeadSplitFrom(const std::string& text) {
  if (text == "allowed") return pd::HeadSplit::kAllowed;
  if (text == "padded_page") return pd::HeadSplit::kPaddedPage;
  if (text == "block_scales") return pd::HeadSplit::kBlockScales;
  Throw(InvalidArgument("head_split is {}; use allowed, padded_page or block_scales", text));
}

void Init(pd::KvRegion* self, std::string layer_name, int64_t layer_index, int64_t group_index,
          std::vector<int64_t> shared_group_ids, uint64_t base_addr, int64_t block_bytes, int64_t kv_bytes,
          int64_t row_offset, int64_t num_blocks, const std::string& head_split, bool hides_layers) {
  const pd::HeadSplit split = HeadSplitFrom(head_split);
  auto* region = new (self) pd::KvRegion;
  region->layer_name = std::move(layer_name);
  region->layer_index = layer_index;
  region->group_index = group_index;
  region->shared_group_ids = std::move(shared_group_ids);
  region->base_addr = base_addr;
  region->block_bytes = block_bytes;
  region->kv_bytes = kv_bytes;
  region->row_offset = row_offset;
  region->num_blocks = num_blocks;
  region->head_split = split;
  region->hides_layers = hides_layers;
}

}  // namespace

void BindPdLayout(nb::module_& module) {
  nb::class_<pd::KvRegion>(
      module, "KvRegion",
      "A run of a layer's blocks in memory; block 0 begins at base_addr, the next one block_bytes later.\n\n"
      "group_index: the transfer group, -1 for those in shared_group_ids. kv_bytes: of a block's KV. row_offset: from "
      "a row's start to its payload where layers share rows, else -1. num_blocks counts kernel blocks. head_split: "
      "whether heads may be cut, 'allowed', 'padded_page' or 'block_scales'. hides_layers: the row has only its first "
      "layer's name.")
      .def("__init__", &Init, "layer_name"_a, nb::kw_only(), "layer_index"_a, "group_index"_a, "shared_group_ids"_a,
           "base_addr"_a, "block_bytes"_a, "kv_bytes"_a, "row_offset"_a, "num_blocks"_a, "head_split"_a,
           "hides_layers"_a)
      .def_ro("layer_name", &pd::KvRegion::layer_name, "The layer.")
      .def_ro("group_index", &pd::KvRegion::group_index, "The transfer group, or -1.")
      .def_ro("base_addr", &pd::KvRegion::base_addr, "Address of block 0's payload.")
      .def_ro("block_bytes", &pd::KvRegion::block_bytes, "From a block to the next.")
      .def_ro("kv_bytes", &pd::KvRegion::kv_bytes, "Payload of a block.")
      .def_ro("num_blocks", &pd::KvRegion::num_blocks, "Kernel blocks.");
}

}  // namespace tenure::python
