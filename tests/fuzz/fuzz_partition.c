/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of layers cut into stages: all layers once, in order, and no cut is better (up to 10
 * layers). */
#include "fuzz.h"
#include "ppcli/nn/model.h"

#define LAYERS_MAX 10

static uint64_t largest(const double *cost, const int *first, const int *last, int n)
{
    uint64_t most = 0;
    for (int s = 0; s < n; s++) {
        uint64_t sum = 0;
        for (int i = first[s]; i <= last[s]; i++)
            sum += (uint64_t)cost[i];
        most = sum > most ? sum : most;
    }
    return most;
}

/* Over all ways to cut: bit i of `cuts` is a cut behind layer i. */
static uint64_t least(const double *cost, int layers, int n)
{
    uint64_t best = UINT64_MAX;
    for (unsigned cuts = 0; cuts < 1u << (layers - 1); cuts++) {
        int first[LAYERS_MAX], last[LAYERS_MAX], s = 0;
        if (__builtin_popcount(cuts) != n - 1)
            continue;
        first[0] = 0;
        for (int i = 0; i < layers; i++) {
            last[s] = i;
            if (cuts >> i & 1)
                first[++s] = i + 1;
        }
        uint64_t here = largest(cost, first, last, n);
        best = here < best ? here : best;
    }
    return best;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pp_layer layers[LAYERS_MAX] = {0};
    double cost[LAYERS_MAX];
    int first[LAYERS_MAX], last[LAYERS_MAX];
    if (size < 3 || size > LAYERS_MAX + 1)
        return 0;
    struct pp_model model = {.layers = layers, .n_layers = (int)size - 1};
    int n = 1 + data[0] % model.n_layers;
    for (int i = 0; i < model.n_layers; i++) {
        layers[i].in = 1 + data[i + 1] % 7;
        cost[i] = data[i + 1];
    }
    pp_assert(pp_partition_costs(&model, cost, n, first, last) == 0);
    pp_assert(first[0] == 0 && last[n - 1] == model.n_layers - 1);
    for (int s = 0; s < n; s++)
        pp_assert(last[s] >= first[s] && (s == 0 || first[s] == last[s - 1] + 1));
    pp_assert(largest(cost, first, last, n) == least(cost, model.n_layers, n));
    return 0;
}
