"""g++ compiles a template-heavy file: the assembler text must be the same, byte for byte."""
import pathlib
import tempfile

import app

SOURCE = r"""
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct fibonacci { static constexpr long value = fibonacci<N - 1>::value + fibonacci<N - 2>::value; };
template <> struct fibonacci<0> { static constexpr long value = 0; };
template <> struct fibonacci<1> { static constexpr long value = 1; };

template <std::size_t... I> constexpr auto squares(std::index_sequence<I...>) {
  return std::array<std::size_t, sizeof...(I)>{(I * I)...};
}
template <typename... T> struct shape {
  std::tuple<T...> parts;
  template <typename F> void each(F f) { std::apply([&](auto &...part) { (f(part), ...); }, parts); }
};
template <int Depth> struct tree {
  std::map<std::string, std::vector<std::variant<int, double, std::string>>> values;
  tree<Depth - 1> left, right;
  std::size_t size() const { return values.size() + left.size() + right.size(); }
};
template <> struct tree<0> { std::size_t size() const { return 1; } };

template <int N> std::size_t use() {
  std::unordered_map<std::string, std::function<int(int)>> table;
  table["n"] = [](int x) { return x * N; };
  std::vector<std::pair<int, std::string>> pairs;
  for (int i = 0; i < N; i++) pairs.emplace_back(table["n"](i), std::to_string(i));
  std::sort(pairs.begin(), pairs.end(), [](const auto &a, const auto &b) { return a.second < b.second; });
  shape<int, double, std::string> s;
  std::size_t sum = 0;
  s.each([&](auto &part) { sum += sizeof part; });
  if constexpr (N > 0) sum += use<N - 1>();
  return sum + pairs.size() + tree<4>().size();
}
long total() { return fibonacci<80>::value + static_cast<long>(use<8>()) + squares(std::make_index_sequence<300>())[17]; }
"""


def test():
    app.need("g++")
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "templates.cc").write_text(SOURCE)
        output = app.same(
            ["g++", "-std=c++17", "-O1", "-frandom-seed=1", "-S", "-o", "-", "templates.cc"], 16 << 20, cwd=folder
        )
    app.check(output.count(b"\n") > 10000, "hardly any output")
    return f"g++: ok ({len(output)} bytes of assembler)"


if __name__ == "__main__":
    app.main(test)
