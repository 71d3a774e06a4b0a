"""The TPC-H queries as templates, and the demo's mix of them.

Texts and substitution rules follow the TPC Benchmark H specification, clause 2.4 (query
definitions), with LIMIT instead of the row counts of clause 2.1.2.9. `ROUND_ONE` is a reporting
team's day: the templates whose scan of lineitem a file's minimum and maximum can narrow, and one
lookup by order, which is not part of TPC-H and which clustering by a date can only make worse.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Parameters = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Query:
    """One execution. name: the template's, number: which of its executions."""

    name: str
    number: int
    sql: str

    @property
    def label(self) -> str:
        return f"{self.name} #{self.number}"


TEXTS: dict[str, str] = {
    "Q1": """
select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty,
  sum(l_extendedprice) as sum_base_price,
  sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
  sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
  avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc,
  count(*) as count_order
from lineitem
where l_shipdate <= date '1998-12-01' - interval '{delta}' day
group by l_returnflag, l_linestatus
order by l_returnflag, l_linestatus""",
    "Q2": """
select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
from part, supplier, partsupp, nation, region
where p_partkey = ps_partkey and s_suppkey = ps_suppkey and p_size = {size}
  and p_type like '%{type}' and s_nationkey = n_nationkey and n_regionkey = r_regionkey
  and r_name = '{region}'
  and ps_supplycost = (
    select min(ps_supplycost) from partsupp, supplier, nation, region
    where p_partkey = ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey
      and n_regionkey = r_regionkey and r_name = '{region}')
order by s_acctbal desc, n_name, s_name, p_partkey limit 100""",
    "Q3": """
select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
from customer, orders, lineitem
where c_mktsegment = '{segment}' and c_custkey = o_custkey and l_orderkey = o_orderkey
  and o_orderdate < date '{date}' and l_shipdate > date '{date}'
group by l_orderkey, o_orderdate, o_shippriority
order by revenue desc, o_orderdate, l_orderkey limit 10""",
    "Q4": """
select o_orderpriority, count(*) as order_count
from orders
where o_orderdate >= date '{date}' and o_orderdate < date '{date}' + interval '3' month
  and exists (
    select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
group by o_orderpriority order by o_orderpriority""",
    "Q5": """
select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
from customer, orders, lineitem, supplier, nation, region
where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
  and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
  and r_name = '{region}' and o_orderdate >= date '{date}'
  and o_orderdate < date '{date}' + interval '1' year
group by n_name order by revenue desc""",
    "Q6": """
select sum(l_extendedprice * l_discount) as revenue
from lineitem
where l_shipdate >= date '{date}' and l_shipdate < date '{date}' + interval '1' year
  and l_discount between {discount} - 0.01 and {discount} + 0.01 and l_quantity < {quantity}""",
    "Q7": """
select supp_nation, cust_nation, l_year, sum(volume) as revenue
from (
  select n1.n_name as supp_nation, n2.n_name as cust_nation, year(l_shipdate) as l_year,
    l_extendedprice * (1 - l_discount) as volume
  from supplier, lineitem, orders, customer, nation n1, nation n2
  where s_suppkey = l_suppkey and o_orderkey = l_orderkey and c_custkey = o_custkey
    and s_nationkey = n1.n_nationkey and c_nationkey = n2.n_nationkey
    and ((n1.n_name = '{nation1}' and n2.n_name = '{nation2}')
      or (n1.n_name = '{nation2}' and n2.n_name = '{nation1}'))
    and l_shipdate between date '1995-01-01' and date '1996-12-31') as shipping
group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year""",
    "Q8": """
select o_year, sum(case when nation = '{nation}' then volume else 0 end) / sum(volume) as mkt_share
from (
  select year(o_orderdate) as o_year, l_extendedprice * (1 - l_discount) as volume,
    n2.n_name as nation
  from part, supplier, lineitem, orders, customer, nation n1, nation n2, region
  where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey
    and o_custkey = c_custkey and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey
    and r_name = '{region}' and s_nationkey = n2.n_nationkey
    and o_orderdate between date '1995-01-01' and date '1996-12-31'
    and p_type = '{type}') as all_nations
group by o_year order by o_year""",
    "Q9": """
select nation, o_year, sum(amount) as sum_profit
from (
  select n_name as nation, year(o_orderdate) as o_year,
    l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
  from part, supplier, lineitem, partsupp, orders, nation
  where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey
    and p_partkey = l_partkey and o_orderkey = l_orderkey and s_nationkey = n_nationkey
    and p_name like '%{color}%') as profit
group by nation, o_year order by nation, o_year desc""",
    "Q10": """
select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name,
  c_address, c_phone, c_comment
from customer, orders, lineitem, nation
where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= date '{date}'
  and o_orderdate < date '{date}' + interval '3' month and l_returnflag = 'R'
  and c_nationkey = n_nationkey
group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
order by revenue desc, c_custkey limit 20""",
    "Q11": """
select ps_partkey, sum(ps_supplycost * ps_availqty) as value
from partsupp, supplier, nation
where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = '{nation}'
group by ps_partkey
having sum(ps_supplycost * ps_availqty) > (
  select sum(ps_supplycost * ps_availqty) * 0.0001 from partsupp, supplier, nation
  where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = '{nation}')
order by value desc""",
    "Q12": """
select l_shipmode,
  sum(case when o_orderpriority = '1-URGENT' or o_orderpriority = '2-HIGH' then 1 else 0 end)
    as high_line_count,
  sum(case when o_orderpriority <> '1-URGENT' and o_orderpriority <> '2-HIGH' then 1 else 0 end)
    as low_line_count
from orders, lineitem
where o_orderkey = l_orderkey and l_shipmode in ('{mode1}', '{mode2}')
  and l_commitdate < l_receiptdate and l_shipdate < l_commitdate
  and l_receiptdate >= date '{date}' and l_receiptdate < date '{date}' + interval '1' year
group by l_shipmode order by l_shipmode""",
    "Q13": """
select c_count, count(*) as custdist
from (
  select c_custkey, count(o_orderkey) as c_count
  from customer left outer join orders
    on c_custkey = o_custkey and o_comment not like '%{word1}%{word2}%'
  group by c_custkey) as c_orders
group by c_count order by custdist desc, c_count desc""",
    "Q14": """
select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount)
  else 0 end) / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
from lineitem, part
where l_partkey = p_partkey and l_shipdate >= date '{date}'
  and l_shipdate < date '{date}' + interval '1' month""",
    "Q15": """
with revenue as (
  select l_suppkey as supplier_no, sum(l_extendedprice * (1 - l_discount)) as total_revenue
  from lineitem
  where l_shipdate >= date '{date}' and l_shipdate < date '{date}' + interval '3' month
  group by l_suppkey)
select s_suppkey, s_name, s_address, s_phone, total_revenue
from supplier, revenue
where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)
order by s_suppkey""",
    "Q16": """
select p_brand, p_type, p_size, count(distinct ps_suppkey) as supplier_cnt
from partsupp, part
where p_partkey = ps_partkey and p_brand <> '{brand}' and p_type not like '{type}%'
  and p_size in ({sizes})
  and ps_suppkey not in (
    select s_suppkey from supplier where s_comment like '%Customer%Complaints%')
group by p_brand, p_type, p_size order by supplier_cnt desc, p_brand, p_type, p_size""",
    "Q17": """
select sum(l_extendedprice) / 7.0 as avg_yearly
from lineitem, part
where p_partkey = l_partkey and p_brand = '{brand}' and p_container = '{container}'
  and l_quantity < (select 0.2 * avg(l_quantity) from lineitem where l_partkey = p_partkey)""",
    "Q18": """
select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
from customer, orders, lineitem
where o_orderkey in (
    select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > {quantity})
  and c_custkey = o_custkey and o_orderkey = l_orderkey
group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
order by o_totalprice desc, o_orderdate limit 100""",
    "Q19": """
select sum(l_extendedprice * (1 - l_discount)) as revenue
from lineitem, part
where (p_partkey = l_partkey and p_brand = '{brand1}'
    and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
    and l_quantity >= {quantity1} and l_quantity <= {quantity1} + 10 and p_size between 1 and 5
    and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
  or (p_partkey = l_partkey and p_brand = '{brand2}'
    and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
    and l_quantity >= {quantity2} and l_quantity <= {quantity2} + 10 and p_size between 1 and 10
    and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
  or (p_partkey = l_partkey and p_brand = '{brand3}'
    and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
    and l_quantity >= {quantity3} and l_quantity <= {quantity3} + 10 and p_size between 1 and 15
    and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')""",
    "Q20": """
select s_name, s_address
from supplier, nation
where s_suppkey in (
    select ps_suppkey from partsupp
    where ps_partkey in (select p_partkey from part where p_name like '{color}%')
      and ps_availqty > (
        select 0.5 * sum(l_quantity) from lineitem
        where l_partkey = ps_partkey and l_suppkey = ps_suppkey
          and l_shipdate >= date '{date}' and l_shipdate < date '{date}' + interval '1' year))
  and s_nationkey = n_nationkey and n_name = '{nation}'
order by s_name""",
    "Q21": """
select s_name, count(*) as numwait
from supplier, lineitem l1, orders, nation
where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F'
  and l1.l_receiptdate > l1.l_commitdate
  and exists (
    select * from lineitem l2
    where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey)
  and not exists (
    select * from lineitem l3
    where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey
      and l3.l_receiptdate > l3.l_commitdate)
  and s_nationkey = n_nationkey and n_name = '{nation}'
group by s_name order by numwait desc, s_name limit 100""",
    "Q22": """
select cntrycode, count(*) as numcust, sum(c_acctbal) as totacctbal
from (
  select substring(c_phone, 1, 2) as cntrycode, c_acctbal
  from customer
  where substring(c_phone, 1, 2) in ({codes})
    and c_acctbal > (
      select avg(c_acctbal) from customer
      where c_acctbal > 0.00 and substring(c_phone, 1, 2) in ({codes}))
    and not exists (select * from orders where o_custkey = c_custkey)) as custsale
group by cntrycode order by cntrycode""",
    "order lookup": """
select l_linenumber, l_shipdate, l_receiptdate, l_quantity
from lineitem where l_orderkey = {orderkey}
order by l_linenumber""",
    "late commits": """
select l_shipmode, count(*) as late
from lineitem
where l_commitdate >= date '{date}' and l_commitdate < date '{date}' + interval '14' day
  and l_receiptdate > l_commitdate
group by l_shipmode order by l_shipmode""",
}

NATIONS = (
    "ALGERIA", "ARGENTINA", "BRAZIL", "CANADA", "EGYPT", "ETHIOPIA", "FRANCE", "GERMANY", "INDIA",
    "INDONESIA", "IRAN", "IRAQ", "JAPAN", "JORDAN", "KENYA", "MOROCCO", "MOZAMBIQUE", "PERU",
    "CHINA", "ROMANIA", "SAUDI ARABIA", "VIETNAM", "RUSSIA", "UNITED KINGDOM", "UNITED STATES",
)  # fmt: skip
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
MODES = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
COLORS = (
    "almond",
    "antique",
    "azure",
    "beige",
    "blue",
    "coral",
    "forest",
    "green",
    "ivory",
    "lime",
)


def _month(random_: random.Random, first: tuple[int, int], last: tuple[int, int]) -> dt.date:
    """Return the first day of a month between two (year, month), both included."""
    low, high = (year * 12 + month - 1 for year, month in (first, last))
    number = random_.randint(low, high)
    return dt.date(number // 12, number % 12 + 1, 1)


def _order_key(number: int) -> int:
    """Return the key of the n-th order: only the first 8 of every 32 are used (clause 4.2.3)."""
    return (number >> 3 << 5) | (number & 7)


def _q7(r: random.Random) -> Parameters:
    return dict(zip(("nation1", "nation2"), r.sample(NATIONS, 2), strict=True))


def _q12(r: random.Random) -> Parameters:
    mode1, mode2 = r.sample(MODES, 2)
    return {"mode1": mode1, "mode2": mode2, "date": dt.date(r.randint(1993, 1997), 1, 1)}


SUBSTITUTE: dict[str, Callable[[random.Random, int], Parameters]] = {
    "Q3": lambda r, _: {"segment": r.choice(SEGMENTS), "date": dt.date(1995, 3, r.randint(1, 31))},
    "Q6": lambda r, _: {
        "date": dt.date(r.randint(1993, 1997), 1, 1),
        "discount": f"0.0{r.randint(2, 9)}",
        "quantity": r.randint(24, 25),
    },
    "Q7": lambda r, _: _q7(r),
    "Q10": lambda r, _: {"date": _month(r, (1993, 2), (1995, 1))},
    "Q12": lambda r, _: _q12(r),
    "Q14": lambda r, _: {"date": _month(r, (1993, 1), (1997, 12))},
    "Q15": lambda r, _: {"date": _month(r, (1993, 1), (1997, 10))},
    "Q20": lambda r, _: {
        "color": r.choice(COLORS),
        "date": dt.date(r.randint(1993, 1997), 1, 1),
        "nation": r.choice(NATIONS),
    },
    "order lookup": lambda r, largest: {"orderkey": _order_key(r.randint(1, largest // 4))},
    "late commits": lambda r, _: {"date": dt.date(1996, 1, 1) + dt.timedelta(r.randint(0, 700))},
}
"""Per template of the demo: its substitution parameters, drawn as in clause 2.4. The second
argument is the largest order key loaded."""

ROUND_ONE = (
    ("Q3", 1), ("Q6", 3), ("Q10", 1), ("Q12", 2), ("Q14", 4), ("Q15", 2), ("Q20", 1),
    ("order lookup", 2),
)  # fmt: skip
"""(template, executions)."""

ROUND_TWO = (("Q6", 1), ("Q14", 2), ("Q15", 1), ("late commits", 8), ("order lookup", 1))
"""After the shift: queries filter on commit dates, by which nothing is clustered so far."""

VALIDATION: dict[str, Parameters] = {
    "Q1": {"delta": 90},
    "Q2": {"size": 15, "type": "BRASS", "region": "EUROPE"},
    "Q3": {"segment": "BUILDING", "date": "1995-03-15"},
    "Q4": {"date": "1993-07-01"},
    "Q5": {"region": "ASIA", "date": "1994-01-01"},
    "Q6": {"date": "1994-01-01", "discount": "0.06", "quantity": 24},
    "Q7": {"nation1": "FRANCE", "nation2": "GERMANY"},
    "Q8": {"nation": "BRAZIL", "region": "AMERICA", "type": "ECONOMY ANODIZED STEEL"},
    "Q9": {"color": "green"},
    "Q10": {"date": "1993-10-01"},
    "Q11": {"nation": "GERMANY"},
    "Q12": {"mode1": "MAIL", "mode2": "SHIP", "date": "1994-01-01"},
    "Q13": {"word1": "special", "word2": "requests"},
    "Q14": {"date": "1995-09-01"},
    "Q15": {"date": "1996-01-01"},
    "Q16": {
        "brand": "Brand#45",
        "type": "MEDIUM POLISHED",
        "sizes": "49, 14, 23, 45, 19, 3, 36, 9",
    },
    "Q17": {"brand": "Brand#23", "container": "MED BOX"},
    "Q18": {"quantity": 300},
    "Q19": {
        "quantity1": 1, "quantity2": 10, "quantity3": 20,
        "brand1": "Brand#12", "brand2": "Brand#23", "brand3": "Brand#34",
    },
    "Q20": {"color": "forest", "date": "1994-01-01", "nation": "CANADA"},
    "Q21": {"nation": "SAUDI ARABIA"},
    "Q22": {"codes": "'13', '31', '23', '29', '30', '18', '17'"},
}  # fmt: skip
"""The validation values of clause 2.4: one execution of each of the 22 queries."""


def draw(mix: Sequence[tuple[str, int]], seed: int, largest_order: int) -> tuple[Query, ...]:
    """Return the executions of a round, in a random but repeatable order."""
    generator = random.Random(seed)
    queries = [
        Query(name, number, _text(name, SUBSTITUTE[name](generator, largest_order)))
        for name, count in mix
        for number in range(1, count + 1)
    ]
    return reordered(queries, seed)


def reordered(queries: Sequence[Query], seed: int) -> tuple[Query, ...]:
    """Return the same executions in another order."""
    shuffled = list(queries)
    random.Random(seed).shuffle(shuffled)
    return tuple(shuffled)


def all_22() -> tuple[Query, ...]:
    """Return each TPC-H query once, with its validation parameters."""
    return tuple(Query(name, 1, _text(name, values)) for name, values in VALIDATION.items())


def _text(name: str, values: Parameters) -> str:
    return TEXTS[name].format(**values).strip()
