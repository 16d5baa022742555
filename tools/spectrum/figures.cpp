// What mh-spectrum says of spectra: means over heads and layers, rows and charts.
#include "figures.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace mh::spectrum {

using analysis::PlaceSpectra;
using nlohmann::ordered_json;

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::vector<double> numbers(const at::Tensor& x) {
  const at::Tensor y = x.contiguous();
  return {y.const_data_ptr<double>(), y.const_data_ptr<double>() + y.numel()};
}

std::vector<Figures> figures_of(const PlaceSpectra& place) {
  const analysis::Ranks means = place.spectra.means();
  const auto area = numbers(means.area), effective = numbers(means.effective), rank_share = numbers(means.share),
             stable = numbers(means.stable), first = numbers(means.first);
  const auto entropy = place.has_entropy ? numbers(place.entropy.entropy()) : std::vector<double>(area.size(), kNone);
  const auto share = place.has_entropy ? numbers(place.entropy.share()) : entropy;
  std::vector<Figures> heads;
  for (size_t h = 0; h < area.size(); ++h) {
    Figures f{area[h],    effective[h], rank_share[h], stable[h],
              entropy[h], share[h],     {first[h]},    numbers(means.curve[static_cast<int64_t>(h)])};
    for (size_t tenth = 1; tenth < 10; ++tenth) f.parts.push_back(f.curve[(tenth * f.curve.size() + 9) / 10 - 1]);
    heads.push_back(f);
  }
  return heads;
}

Figures mean_of(const std::vector<Figures>& all) {
  Figures m;
  m.parts.resize(10);
  const bool alike =
      std::all_of(all.begin(), all.end(), [&](const Figures& f) { return f.curve.size() == all[0].curve.size(); });
  if (alike) m.curve.resize(all[0].curve.size());
  const auto add = [&](double& to, double x) { to += x / static_cast<double>(all.size()); };
  for (const Figures& f : all) {
    add(m.area, f.area), add(m.effective, f.effective), add(m.rank_share, f.rank_share), add(m.stable, f.stable);
    add(m.entropy, f.entropy), add(m.entropy_share, f.entropy_share);
    for (size_t i = 0; i < m.parts.size(); ++i) add(m.parts[i], f.parts[i]);
    for (size_t i = 0; i < m.curve.size(); ++i) add(m.curve[i], f.curve[i]);
  }
  return m;
}

void add_figures(ordered_json& row, const Figures& f) {
  row["area"] = f.area;
  row["effective_rank"] = f.effective;
  row["rank_share"] = f.rank_share;
  row["stable_rank"] = f.stable;
  row["entropy"] = f.entropy;
  row["entropy_share"] = f.entropy_share;
  for (size_t i = 0; i < f.parts.size(); ++i) row[i == 0 ? "c_first" : str("c_", 10 * i)] = f.parts[i];
}

std::vector<std::string> short_names(const std::vector<std::string>& paths) {
  std::vector<std::vector<std::string>> parts;
  for (const std::string& path : paths) parts.push_back(split(path, '/'));
  const auto common = [&](auto part) {  // part(path, i): the i-th from one end
    size_t i = 0;
    while (std::all_of(parts.begin(), parts.end(), [&](const auto& p) {
      return i + 1 < p.size() && i + 1 < parts[0].size() && part(p, i) == part(parts[0], i);
    }))
      ++i;
    return i;
  };
  size_t front = common([](const auto& p, size_t i) { return p[i]; });
  size_t back = common([](const auto& p, size_t i) { return p[p.size() - 1 - i]; });
  std::vector<std::string> names;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& p = parts[i];
    if (parts.size() < 2 || front + back >= p.size()) names.push_back(paths[i]);
    else
      names.push_back(
          join({p.begin() + static_cast<std::ptrdiff_t>(front), p.end() - static_cast<std::ptrdiff_t>(back)}, "/"));
  }
  return names;
}

Chart chart_of(const std::string& title, const std::vector<std::pair<std::string, Figures>>& curves, bool with_mean,
               bool by_share) {
  Chart chart{title, by_share ? "k / n, n the smaller side" : "k", "c_k", {}};
  const auto add = [&](const std::string& name, const std::vector<double>& y, bool bold) {
    Curve curve{name, {}, y, bold};
    for (size_t k = 0; k < y.size(); ++k)
      curve.x.push_back(static_cast<double>(k + 1) / (by_share ? static_cast<double>(y.size()) : 1));
    chart.curves.push_back(curve);
  };
  std::vector<Figures> all;
  for (const auto& [name, f] : curves) add(name, f.curve, false), all.push_back(f);
  if (!with_mean || all.size() < 2) return chart;
  if (const Figures mean = mean_of(all); !mean.curve.empty()) add("mean", mean.curve, true);
  return chart;
}

std::vector<std::vector<double>> rows_of(const at::Tensor& x) {
  std::vector<std::vector<double>> rows;
  for (int64_t i = 0; i < x.size(0); ++i) rows.push_back(numbers(x[i]));
  return rows;
}

}  // namespace mh::spectrum
