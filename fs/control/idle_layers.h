#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fs/view/layer_view.h"

namespace varve::fs {

/// Layers that nobody has attached any more and that stay attached for a while: the next sandbox on
/// the same image then finds its mounts made and their page cache warm. Thread-safe.
class IdleLayers {
 public:
  /// One attach of a view, and one use of its shared mount when `has_mount`.
  struct Layer {
    std::shared_ptr<LayerView> view;
    bool has_mount = false;
    Deadline until;
  };
  /// What keep() took over; the caller gives back the rest itself.
  struct Taken {
    bool attach = false;
    bool mount = false;
  };

  /// Keeps the view under `key` until `until`, taking over what it does not hold of it already.
  Taken keep(const std::string& key, const std::shared_ptr<LayerView>& view, bool has_mount,
             Deadline until);
  /// What is due at `now`, and the oldest of what exceeds `count_max`; the caller gives it back.
  std::vector<Layer> take_due(Deadline now, size_t count_max);

 private:
  std::mutex mutex_;
  std::map<std::string, Layer> layers_;
};

}  // namespace varve::fs
