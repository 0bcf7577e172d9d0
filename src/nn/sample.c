/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the next token. */
#include <math.h>

#include "ppcli/nn/chunk.h"

/* Returns whether token a comes before token b in the order of logits, the largest first; of equal
 * logits the smaller token comes first. */
static bool comes_before(const float *logits, int a, int b)
{
    return logits[a] > logits[b] || (!(logits[a] < logits[b]) && a < b);
}

/* Puts `token` at place `at` of a heap and moves it down to its place. The root of the heap is the
 * token that comes last in the order of comes_before(). */
static void sink_token(const float *logits, int *heap, int n, int at, int token)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_before(logits, heap[child], heap[child + 1]))
            child++;
        if (comes_before(logits, heap[child], token))
            break;
        heap[at] = heap[child];
    }
    heap[at] = token;
}

/* Returns the token that comes k-th in the order of comes_before(). */
static int find_kth_token(const float *logits, int n, int k, int *heap)
{
    for (int i = k - 1; i >= 0; i--)
        sink_token(logits, heap, k, i, i);
    for (int i = k; i < n; i++)
        if (comes_before(logits, i, heap[0]))
            sink_token(logits, heap, k, 0, i);
    return heap[0];
}

int pp_sample(const float *logits, int n, double temperature, int top_k, double u, int *heap)
{
    int first = 0;
    for (int i = 1; i < n; i++)
        first = logits[i] > logits[first] ? i : first;
    if (!(temperature > 0))
        return first;
    int last = top_k > 0 && top_k < n ? find_kth_token(logits, n, top_k, heap) : -1;
    double sum = 0, so_far = 0;
    int chosen = first;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            if (last >= 0 && comes_before(logits, last, i))
                continue;
            double p = exp(((double)logits[i] - (double)logits[first]) / temperature);
            if (pass == 0) {
                sum += p;
                continue;
            }
            so_far += p;
            if (p > 0)
                chosen = i;
            if (so_far > u * sum)
                return chosen;
        }
    }
    return chosen; /* u * sum may round up to the whole sum */
}
