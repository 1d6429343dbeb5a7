#include "fs/view/node_table.h"

#include <algorithm>
#include <mutex>

#include "base/hash.h"
#include "fs/fuse/protocol.h"

namespace varve::fs {
namespace {

// Ids of views and domains have the top bit set, so they never meet the root's. Room above the
// highest view for the largest metadata region.
constexpr uint64_t kTopBit = uint64_t{1} << 63;
constexpr uint64_t kNodeCountMax = uint64_t{1} << 40;

}  // namespace

NodeTable::NodeTable(FirstNodeId first_node_id) : first_node_id_(first_node_id) {}

uint64_t NodeTable::hashed_node_id(std::string_view domain, const Digest& layer) {
  std::string key(domain);
  key += '\0';
  key += as_text(layer.view());
  return xxh3_64(as_bytes(key)) % (kTopBit - kNodeCountMax) + kTopBit;
}

uint64_t NodeTable::domain_node(std::string_view name) {
  std::string key = "domain";
  key += '\0';
  key += name;
  return xxh3_64(as_bytes(key)) % (kTopBit - kNodeCountMax) + kTopBit;
}

Domain& NodeTable::domain_of(std::string_view name) {
  const auto found = domains_.find(name);
  if (found != domains_.end()) return *found->second;
  auto domain = std::make_shared<Domain>(std::string(name), domain_node(name));
  domains_by_node_.emplace(domain->node_id, domain);
  return *domains_.emplace(domain->name, std::move(domain)).first->second;
}

bool NodeTable::range_is_free(uint64_t first, uint64_t count) const {
  const auto after = views_by_node_.lower_bound(first);
  if (after != views_by_node_.end() && after->first - first < count) return false;
  const auto domain = domains_by_node_.lower_bound(first);
  if (domain != domains_by_node_.end() && domain->first - first < count) return false;
  if (after == views_by_node_.begin()) return true;
  const auto& [before, view] = *std::prev(after);
  return first - before >= LayerView::node_count(*view->layer);
}

Result<std::shared_ptr<LayerView>> NodeTable::attach(std::string_view domain_name,
                                                     std::shared_ptr<AttachedLayer> layer) {
  std::lock_guard lock(mutex_);
  Domain& domain = domain_of(domain_name);
  const std::string id = layer->id().hex();
  if (const auto found = domain.views.find(id); found != domain.views.end()) {
    ++found->second->attach_count;
    return found->second;
  }
  const uint64_t first = first_node_id_(domain_name, layer->id());
  if (!range_is_free(first, LayerView::node_count(*layer))) {
    drop_unused(domain);
    return fail(ErrorCode::kInternal, "the node ids of layer " + id + " in domain '" +
                                          std::string(domain_name) + "' meet another layer's");
  }
  auto view = std::make_shared<LayerView>(domain.name, std::move(layer), first);
  view->attach_count = 1;
  domain.views.emplace(id, view);
  views_by_node_.emplace(first, view);
  return view;
}

std::shared_ptr<LayerView> NodeTable::attach_again(std::string_view domain_name,
                                                   const Digest& layer) {
  std::lock_guard lock(mutex_);
  const auto domain = domains_.find(domain_name);
  if (domain == domains_.end()) return nullptr;
  const auto found = domain->second->views.find(layer.hex());
  if (found == domain->second->views.end()) return nullptr;
  ++found->second->attach_count;
  return found->second;
}

std::shared_ptr<AttachedLayer> NodeTable::find_layer(const Digest& layer,
                                                     const chunkstore::Store& store) const {
  const std::string id = layer.hex();
  std::shared_lock lock(mutex_);
  for (const auto& [name, domain] : domains_) {
    const auto found = domain->views.find(id);
    if (found == domain->views.end()) continue;
    if (found->second->layer->source_in(store) != nullptr) return found->second->layer;
  }
  return nullptr;
}

bool NodeTable::has_attached_view(const Domain& domain) {
  return std::any_of(domain.views.begin(), domain.views.end(),
                     [](const auto& item) { return item.second->attach_count > 0; });
}

NodeTable::Detached NodeTable::detach(const std::shared_ptr<LayerView>& view) {
  std::lock_guard lock(mutex_);
  Domain& domain = domain_of(view->domain);
  Detached detached;
  detached.was_last = --view->attach_count == 0;
  detached.domain_node = domain.node_id;
  detached.domain_is_empty = !has_attached_view(domain);
  drop_unused(domain);
  return detached;
}

void NodeTable::drop_unused(Domain& domain) {
  std::erase_if(domain.views, [&](const auto& item) {
    const LayerView& view = *item.second;
    if (view.attach_count > 0 || view.lookup_count.load() > 0) return false;
    views_by_node_.erase(view.first_node_id);
    return true;
  });
  if (domain.views.empty() && domain.lookup_count.load() <= 0) {
    const std::string name = domain.name;
    domains_by_node_.erase(domain.node_id);
    domains_.erase(name);
  }
}

std::optional<Node> NodeTable::find(uint64_t node_id) const {
  Node node;
  node.id = node_id;
  if (node_id == fuse::kRootNodeId) return node;
  std::shared_lock lock(mutex_);
  const auto after = views_by_node_.upper_bound(node_id);
  if (after != views_by_node_.begin()) {
    const auto& [first, view] = *std::prev(after);
    const uint64_t in_view = node_id - first;
    if (in_view < LayerView::node_count(*view->layer)) {
      node.view = view;
      if (in_view == LayerView::kDirectory) {
        node.kind = Node::Kind::kLayer;
      } else if (in_view == LayerView::kImage) {
        node.kind = Node::Kind::kImage;
      } else {
        node.kind = Node::Kind::kTree;
        node.nid = in_view - LayerView::kTree;
      }
      return node;
    }
  }
  const auto domain = domains_by_node_.find(node_id);
  if (domain == domains_by_node_.end()) return std::nullopt;
  node.kind = Node::Kind::kDomain;
  node.domain = domain->second;
  return node;
}

std::optional<Node> NodeTable::look_up(const Node& parent, std::string_view name) {
  std::shared_lock lock(mutex_);
  Node node;
  if (parent.kind == Node::Kind::kRoot) {
    const auto found = domains_.find(name);
    if (found == domains_.end()) return std::nullopt;
    node.kind = Node::Kind::kDomain;
    node.domain = found->second;
    node.id = node.domain->node_id;
  } else {
    const auto found = parent.domain->views.find(name);
    if (found == parent.domain->views.end() || found->second->attach_count == 0) {
      return std::nullopt;
    }
    node.kind = Node::Kind::kLayer;
    node.view = found->second;
    node.id = node.view->first_node_id + LayerView::kDirectory;
  }
  add_reference(node);
  return node;
}

void NodeTable::add_reference(const Node& node) {
  if (node.view != nullptr) {
    node.view->lookup_count.fetch_add(1);
  } else if (node.domain != nullptr) {
    node.domain->lookup_count.fetch_add(1);
  }
}

void NodeTable::forget(uint64_t node_id, uint64_t count) {
  const std::optional<Node> node = find(node_id);
  if (!node || node->kind == Node::Kind::kRoot) return;
  auto& references = node->view != nullptr ? node->view->lookup_count : node->domain->lookup_count;
  const auto dropped = static_cast<int64_t>(count);
  if (references.fetch_sub(dropped) > dropped) return;
  std::lock_guard lock(mutex_);
  const auto domain =
      domains_.find(node->view != nullptr ? node->view->domain : node->domain->name);
  if (domain != domains_.end()) drop_unused(*domain->second);
}

std::vector<std::pair<std::string, uint64_t>> NodeTable::children(const Node& parent) const {
  std::shared_lock lock(mutex_);
  std::vector<std::pair<std::string, uint64_t>> result;
  if (parent.kind == Node::Kind::kRoot) {
    // A domain that the kernel only remembers shows no more than its layers do.
    for (const auto& [name, domain] : domains_) {
      if (has_attached_view(*domain)) result.emplace_back(name, domain->node_id);
    }
  } else {
    for (const auto& [name, view] : parent.domain->views) {
      if (view->attach_count > 0) result.emplace_back(name, view->first_node_id);
    }
  }
  return result;
}

std::vector<std::shared_ptr<LayerView>> NodeTable::attached_views() const {
  std::shared_lock lock(mutex_);
  std::vector<std::shared_ptr<LayerView>> result;
  for (const auto& [name, domain] : domains_) {
    for (const auto& [id, view] : domain->views) {
      if (view->attach_count > 0) result.push_back(view);
    }
  }
  return result;
}

size_t NodeTable::view_count() const {
  std::shared_lock lock(mutex_);
  return views_by_node_.size();
}

}  // namespace varve::fs
