// Random models on random engines, every piece of every prefill worker carried out in a random order, and every byte of
// every decode worker compared with what its head and token say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tenure/base/random.h"
#include "tenure/base/test_scale_testing.h"
#include "tenure/pd/kv_world_testing.h"
#include "tenure/pd/pull_layout.h"
#include "tenure/pd/write_plan.h"

namespace tenure::pd {
namespace {

struct Coverage {
  int64_t cut_heads = 0;
  int64_t silent_workers = 0;
  int64_t joined_regions = 0;
  int64_t joined_blocks = 0;
  int64_t other_stages = 0;
  int64_t states = 0;
};

bool Divide(int64_t a, int64_t b) { return std::max(a, b) % std::min(a, b) == 0; }

class Case {
 public:
  Case(uint64_t seed, Coverage& coverage) : random_(seed), coverage_(coverage) {
    ChooseModel();
    ChooseEngines();
    ChooseTensors();
  }

  void Run() {
    std::vector<std::unique_ptr<KvWorker>> prefill = Workers(prefill_);
    const std::vector<KvRequest> on_prefill = ChooseRequests();
    for (const auto& worker : prefill) {
      for (const KvRequest& request : on_prefill) worker->Prefill(request);
    }
    for (const auto& decode : Workers(decode_)) {
      const std::vector<KvRequest> on_decode = ChooseEndsOf(on_prefill);
      std::vector<WritePiece> pieces;
      const auto peers = *PrefillWorkersOf(decode->layout().rank, prefill_.tp_size, prefill_.pp_size);
      for (const PeerRank& peer : peers) {
        const KvWorker& source = *prefill[peer.tp_rank * prefill_.pp_size + peer.pp_rank];
        ASSERT_NO_FATAL_FAILURE(Plan(source, *decode, on_prefill, on_decode, pieces));
      }
      std::shuffle(pieces.begin(), pieces.end(), random_);
      for (const WritePiece& piece : pieces) {
        ASSERT_TRUE(decode->Write(reinterpret_cast<const uint8_t*>(piece.from), piece.to, piece.size))
            << "writes " << piece.size << " bytes beside D's memory, or again";
      }
      ASSERT_EQ(decode->Difference(on_decode), "");
    }
  }

  std::string Description() const {
    return fmt::format("{} heads, MLA {}, {} groups, {} tensors, {} kernel blocks; tp {}->{}, pp {}->{}, packed {}->{}",
                       model_.traits.total_kv_heads, model_.traits.is_mla, model_.traits.groups.size(),
                       model_.tensors.size(), model_.physical, prefill_.tp_size, decode_.tp_size, prefill_.pp_size,
                       decode_.pp_size, prefill_.style.packed, decode_.style.packed);
  }

 private:
  void ChooseModel() {
    model_.traits.total_kv_heads = random_.Between(1, 8);
    model_.traits.is_mla = random_.Chance(0.25);
    model_.tokens = random_.Between(1, 3);
    model_.token_bytes = random_.Between(1, 4);
    model_.physical = random_.Chance(0.5) ? 1 : random_.Between(2, 4);
    const int64_t groups = random_.Between(1, 3);
    for (int64_t i = 0; i < groups; ++i) {
      const bool is_state = groups > 1 && random_.Chance(0.2);
      model_.traits.groups.push_back({is_state, is_state ? 1 : model_.physical});
    }
  }

  // Sizes that divide, and equal tensor sizes for states.
  void ChooseEngines() {
    const bool states = std::any_of(model_.traits.groups.begin(), model_.traits.groups.end(),
                                    [](const KvGroup& group) { return group.is_state; });
    const int64_t heads = model_.traits.is_mla ? 1 : model_.traits.total_kv_heads;
    do {
      prefill_.tp_size = random_.Between(1, 8);
      decode_.tp_size = states || random_.Chance(0.2) ? prefill_.tp_size : random_.Between(1, 8);
    } while (!Divide(prefill_.tp_size, decode_.tp_size) || !Divide(prefill_.tp_size, heads) ||
             !Divide(decode_.tp_size, heads));
    prefill_.pp_size = random_.Between(1, 3);
    decode_.pp_size = random_.Chance(0.6) ? prefill_.pp_size : random_.Between(1, 3);
    prefill_.style = ChooseStyle();
    decode_.style = random_.Chance(0.5) ? prefill_.style : ChooseStyle();
    // A row that one payload fills is not told from one that hides layers, and refused.
    if (prefill_.pp_size != decode_.pp_size) decode_.style.row_tail_bytes_min = 1;
  }

  KvStyle ChooseStyle() {
    return {.packed = random_.Chance(0.6),
            .tells_rows = random_.Chance(0.9),
            .reversed = random_.Chance(0.2),
            .gap_bytes_max = random_.Chance(0.5) ? 0 : random_.Between(1, 9),
            .gap_seed = random_()};
  }

  // At least a layer for each stage; a layer has one tensor or two under one name.
  void ChooseTensors() {
    const int64_t layers = random_.Between(3, 6);
    std::vector<int64_t> attention;
    for (size_t i = 0; i < model_.traits.groups.size(); ++i) {
      if (!model_.traits.groups[i].is_state) attention.push_back(static_cast<int64_t>(i));
    }
    const bool sharing = attention.size() > 1 && random_.Chance(0.3);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t group = static_cast<int64_t>(random_.Below(model_.traits.groups.size()));
      const bool is_state = model_.traits.groups[group].is_state;
      KvTensor tensor = {fmt::format("layers.{}", layer), layer, {group}, is_state ? random_.Between(1, 20) : 0};
      if (!is_state && sharing && random_.Chance(0.5)) tensor.groups = attention;
      const int64_t tensors = random_.Chance(0.2) ? 2 : 1;
      for (int64_t i = 0; i < tensors; ++i) model_.tensors.push_back(tensor);
    }
  }

  std::vector<std::unique_ptr<KvWorker>> Workers(const KvEngine& engine) {
    std::vector<std::unique_ptr<KvWorker>> workers;
    for (int64_t tp = 0; tp < engine.tp_size; ++tp) {
      for (int64_t pp = 0; pp < engine.pp_size; ++pp) {
        workers.push_back(std::make_unique<KvWorker>(model_, engine, tp, pp, random_()));
      }
    }
    return workers;
  }

  // Ids of a pool that no two requests or groups share, in short runs.
  std::vector<std::vector<int64_t>> ChooseRuns() {
    std::vector<std::vector<int64_t>> runs;
    for (int64_t id = 1; id < KvWorker::kLogicalBlocks;) {
      std::vector<int64_t>& run = runs.emplace_back();
      for (int64_t left = random_.Between(1, 5); left > 0 && id < KvWorker::kLogicalBlocks; --left) run.push_back(id++);
    }
    std::shuffle(runs.begin(), runs.end(), random_);
    return runs;
  }

  std::vector<int64_t> TakeIds(std::vector<std::vector<int64_t>>& runs, int64_t count, bool is_state) {
    std::vector<int64_t> ids;
    while (count > 0) {
      std::vector<int64_t>& run = runs.back();
      if (is_state && random_.Chance(0.3)) ids.push_back(kNullBlock);
      ids.push_back(run.front());
      run.erase(run.begin());
      if (run.empty()) runs.pop_back();
      --count;
    }
    if (is_state && random_.Chance(0.3)) ids.push_back(kNullBlock);
    return ids;
  }

  std::vector<KvRequest> ChooseRequests() {
    std::vector<std::vector<int64_t>> runs = ChooseRuns();
    std::vector<KvRequest> requests;
    const int64_t count = random_.Between(1, 3);
    for (int64_t i = 0; i < count; ++i) {
      KvRequest& request = requests.emplace_back();
      request.id = random_();
      for (const KvGroup& group : model_.traits.groups) {
        request.blocks.push_back(TakeIds(runs, random_.Between(0, 6), group.is_state));
      }
    }
    return requests;
  }

  // Of each list, as many of its last blocks as a decoder asks for.
  std::vector<KvRequest> ChooseEndsOf(const std::vector<KvRequest>& on_prefill) {
    std::vector<std::vector<int64_t>> runs = ChooseRuns();
    std::vector<KvRequest> requests;
    for (const KvRequest& request : on_prefill) {
      KvRequest& asked = requests.emplace_back();
      asked.id = request.id;
      for (size_t i = 0; i < request.blocks.size(); ++i) {
        const bool is_state = model_.traits.groups[i].is_state;
        const auto& ids = request.blocks[i];
        const int64_t blocks = std::ssize(ids) - (is_state ? std::count(ids.begin(), ids.end(), kNullBlock) : 0);
        asked.blocks.push_back(TakeIds(runs, random_.Chance(0.6) ? blocks : random_.Between(0, blocks), is_state));
      }
    }
    return requests;
  }

  void Plan(const KvWorker& prefill, const KvWorker& decode, const std::vector<KvRequest>& on_prefill,
            const std::vector<KvRequest>& on_decode, std::vector<WritePiece>& pieces) {
    Pull pull;
    WritePullLayout(decode.layout(), pull);
    if (random_.Chance(0.3)) pull.remote_pp_rank = std::nullopt;
    const auto plan = WritePlan::Create(prefill.layout(), model_.traits, pull);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const size_t before = pieces.size();
    for (size_t i = 0; i < on_prefill.size(); ++i) {
      const absl::Status status = plan->Append(on_prefill[i].blocks, on_decode[i].blocks, pieces);
      ASSERT_TRUE(status.ok()) << status;
    }
    for (size_t i = before; i < pieces.size(); ++i) {
      ASSERT_TRUE(prefill.Holds(pieces[i].from, pieces[i].size)) << "reads beside P's memory";
    }
    ASSERT_TRUE(plan->sends() || pieces.size() == before);
    for (size_t i = before; i < pieces.size(); ++i) {
      coverage_.joined_blocks += pieces[i].size > static_cast<uint64_t>(prefill.layout().regions[0].block_bytes);
    }
    Count(prefill, *plan);
  }

  void Count(const KvWorker& prefill, const WritePlan& plan) {
    coverage_.silent_workers += !plan.sends();
    coverage_.joined_regions += plan.sends() && plan.num_regions() < prefill.layout().regions.size();
    coverage_.cut_heads += prefill_.tp_size != decode_.tp_size && !model_.traits.is_mla;
    coverage_.other_stages += prefill_.pp_size != decode_.pp_size;
    coverage_.states += std::any_of(model_.traits.groups.begin(), model_.traits.groups.end(),
                                    [](const KvGroup& group) { return group.is_state; });
  }

  Random random_;
  Coverage& coverage_;
  KvModel model_;
  KvEngine prefill_;
  KvEngine decode_;
};

TEST(WritePlanModelTest, EveryByteOfEveryDecoderIsWhatItsHeadAndTokenSay) {
  Coverage coverage;
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(RandomCases(3'000)); ++seed) {
    Case test(seed, coverage);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, test.Description()));
    ASSERT_NO_FATAL_FAILURE(test.Run());
  }
  EXPECT_GT(coverage.cut_heads, 0);
  EXPECT_GT(coverage.silent_workers, 0);
  EXPECT_GT(coverage.joined_regions, 0);
  EXPECT_GT(coverage.joined_blocks, 0);
  EXPECT_GT(coverage.other_stages, 0);
  EXPECT_GT(coverage.states, 0);
}

}  // namespace
}  // namespace tenure::pd
