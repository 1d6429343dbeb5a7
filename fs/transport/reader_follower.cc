#include "fs/transport/reader_follower.h"

#include <sched.h>

#include <utility>

namespace varve::fs {

void ReaderFollower::on_request(uint32_t reader) {
  if (reader != reader_) {
    reader_ = reader;
    count_ = 0;
    watch_.reset();
    if (const auto home = std::exchange(home_, std::nullopt)) move_to_cpu(*home);
  }
  ++count_;
  if (reader == 0 || count_ < kProvenCount || (count_ - kProvenCount) % kPeriod != 0) return;
  if (!watch_) watch_.emplace(reader);
  const auto cpu = watch_->cpu();
  const int here = sched_getcpu();
  if (!cpu || *cpu == here) return;
  if (move_to_cpu(*cpu) && !home_) home_ = here;
}

}  // namespace varve::fs
