#include "data/shared_batches.h"

#include <algorithm>
#include <utility>

namespace mh::data {

namespace {

class SharedBatches : public Batches {
 public:
  SharedBatches(std::unique_ptr<Batches> batches, int rank, int num_processes, bool adds_fillers)
      : batches_(std::move(batches)), rank_(rank), num_processes_(num_processes), adds_fillers_(adds_fillers) {
    copy_base_members(*batches_);
  }

  std::vector<int64_t> row_costs(int64_t update) override { return batches_->row_costs(update); }
  std::vector<MicroBatch> micro_batches_of(int64_t update, const BatchRowRange& rows) override {
    return batches_->micro_batches_of(update, rows);
  }
  BatchRowRange own_rows(int64_t update) override {
    return divide_rows(row_costs(update), num_processes_)[static_cast<size_t>(rank_)];
  }
  std::vector<MicroBatch> micro_batches(int64_t update) override {
    std::vector<MicroBatch> micro_batches = micro_batches_of(update, own_rows(update));
    if (adds_fillers_)
      for (const BatchRowRange& rows : divide_rows(row_costs(update), num_processes_))
        micro_batches.resize(std::max(micro_batches.size(), micro_batches_of(update, rows).size()), {0, 1, true});
    return micro_batches;
  }
  Batch load(int64_t update, const MicroBatch& micro_batch) override { return batches_->load(update, micro_batch); }
  std::string describe_rows(int64_t update) override { return batches_->describe_rows(update); }
  bool continues_streams(int64_t update) const override { return batches_->continues_streams(update); }
  int64_t to_updates(const Length& length) const override { return batches_->to_updates(length); }
  std::vector<double> shard_epochs(int64_t num_updates) override { return batches_->shard_epochs(num_updates); }

 private:
  const std::unique_ptr<Batches> batches_;
  const int rank_, num_processes_;
  const bool adds_fillers_;
};

}  // namespace

std::unique_ptr<Batches> share_batches(std::unique_ptr<Batches> batches, int rank, int num_processes,
                                       bool adds_fillers) {
  return std::make_unique<SharedBatches>(std::move(batches), rank, num_processes, adds_fillers);
}

}  // namespace mh::data
