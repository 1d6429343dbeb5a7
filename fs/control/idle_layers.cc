#include "fs/control/idle_layers.h"

#include <algorithm>
#include <utility>

namespace varve::fs {

IdleLayers::Taken IdleLayers::keep(const std::string& key, const std::shared_ptr<LayerView>& view,
                                   bool has_mount, Deadline until) {
  std::lock_guard lock(mutex_);
  Layer& layer = layers_[key];
  Taken taken;
  taken.attach = layer.view == nullptr;
  taken.mount = has_mount && !layer.has_mount;
  if (taken.attach) layer.view = view;
  layer.has_mount = layer.has_mount || has_mount;
  layer.until = until;
  return taken;
}

std::vector<IdleLayers::Layer> IdleLayers::take_due(Deadline now, size_t count_max) {
  std::lock_guard lock(mutex_);
  std::vector<Layer> due;
  const auto take = [&](auto at) {
    due.push_back(std::move(at->second));
    return layers_.erase(at);
  };
  for (auto at = layers_.begin(); at != layers_.end();) {
    at = at->second.until <= now ? take(at) : std::next(at);
  }
  while (layers_.size() > count_max) {
    take(std::min_element(layers_.begin(), layers_.end(), [](const auto& a, const auto& b) {
      return a.second.until < b.second.until;
    }));
  }
  return due;
}

}  // namespace varve::fs
