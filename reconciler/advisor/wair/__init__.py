"""The mechanisms of WAIR: Liu, Zhou, Yan and Zhang, "Workload-Aware Incremental Reclustering in
Cloud Data Warehouses", each where it is.

Section 3.3, extension 1, memory limit: `memory`. Extension 2, warm start: `warm_start`. Extension
3, reselection of the key: `reselection`. Section 4.1 and Eq. 3, utilization and savings:
`utilization`. Eq. 1 and Algorithm 2, the cut; Eq. 2, debt and its limit; Eq. 4, alpha; Eq. 5,
credit with the allowance c: `cut`. Realised savings of Eq. 2 and 5: `advisor.measure.credit`. The
window that doubles and halves: `queries.forecasts.window`. Eq. 6, the bonus beta: `performance`;
elsewhere a file that a query skips counts by the measured price of an opening
(`queries.open_price`). Section 4.4, signatures and groups: `signature`.

`literal` puts them together as the paper does (`recluster.method: Literal`). The decisions of
`choose.recluster` use the same cut, signatures and limits, and act on the what-if instead.
"""
