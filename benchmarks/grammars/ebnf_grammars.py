"""Grammars of small languages, each with a text of it, for ``against_llguidance.py --ebnf``."""

from __future__ import annotations

JSON = r"""
root ::= ws value ws
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (member ("," ws member)*)? "}"
member ::= string ws ":" ws value ws
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
ws ::= [ \t\n]*
"""

JSON_TEXT = """{"users": [
  {"id": 17, "name": "Ada Lovelace", "tags": ["mathematics", "engines"], "active": true,
   "score": -12.5e3, "note": "She wrote \\"notes\\" on the Analytical Engine.\\n"},
  {"id": 18, "name": "Müller, Jürgen", "tags": [], "active": false, "score": 0.25, "note": null}
], "next": {"page": 2, "of": 40, "url": "https://example.org/users?page=2"}}"""

ARITHMETIC = r"""
root ::= line+
line ::= name " = " sum "\n"
sum ::= sum ws ("+" | "-") ws product | product
product ::= product ws ("*" | "/" | "%") ws power | power
power ::= unary (ws "^" ws power)?
unary ::= "-" unary | atom
atom ::= number | name | call | "(" ws sum ws ")"
call ::= ("sin" | "cos" | "sqrt" | "max" | "min") "(" ws sum (ws "," ws sum)* ws ")"
name ::= [a-z] [a-z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
ws ::= " "?
"""

ARITHMETIC_TEXT = """radius = 3.25
area = 3.14159 * radius ^ 2
height = sqrt(area) + max(radius, 2 * radius - 1) / (1 + 0.5)
volume = area*height - (-4 + min(1, 2, radius)) % 7
angle = sin(volume / 100) ^ 2 + cos(volume / 100) ^ 2
"""

C_LIKE = r"""
root ::= ws (function | declaration)+
function ::= typed "(" ws parameters? ")" ws block
parameters ::= typed ws ("," ws typed ws)*
typed ::= ("const" space)? ("int" | "float" | "char" | "void" | "struct" space identifier)
  (space | ws ("*" ws)+) identifier
declaration ::= typed ws ("[" ws expression "]" ws)? ("=" ws expression)? ";" ws
block ::= "{" ws statement* "}" ws
statement ::= block | declaration | branch | loop | "return" (space expression)? ";" ws
  | "break" ws ";" ws | "continue" ws ";" ws | expression ";" ws
branch ::= "if" ws "(" ws expression ")" ws statement ("else" ws statement)?
loop ::= "while" ws "(" ws expression ")" ws statement
  | "for" ws "(" ws (declaration | expression ";" ws) expression ";" ws expression ")" ws statement
expression ::= assignment
assignment ::= conditional (("=" | "+=" | "-=" | "*=" | "/=") ws assignment)?
conditional ::= or ("?" ws expression ":" ws conditional)?
or ::= and ("||" ws and)*
and ::= equality ("&&" ws equality)*
equality ::= relation (("==" | "!=") ws relation)*
relation ::= sum (("<=" | ">=" | "<" | ">") ws sum)*
sum ::= term (("+" | "-") ws term)*
term ::= unary (("*" | "/" | "%") ws unary)*
unary ::= ("!" | "-" | "*" | "&" | "++" | "--") ws unary | postfix
postfix ::= primary ("[" ws expression "]" ws | "(" ws arguments? ")" ws
  | ("." | "->") ws identifier ws | ("++" | "--") ws)*
arguments ::= assignment ("," ws assignment)*
primary ::= identifier ws | number ws | string ws | character ws | "(" ws expression ")" ws
identifier ::= [a-zA-Z_] [a-zA-Z0-9_]*
number ::= [0-9]+ ("." [0-9]+)? "f"?
string ::= "\"" ([^"\\\n] | "\\" [^\n])* "\""
character ::= "'" ([^'\\\n] | "\\" [^\n]) "'"
space ::= [ \t\n]+
ws ::= ([ \t\n] | "//" [^\n]* "\n")*
"""

C_LIKE_TEXT = """// The greatest common divisor, and a test of it.
int gcd(int a, int b) {
    while (b != 0) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void print_all(const char *names, int count) {
    for (int i = 0; i < count; i++) {
        if (names[i] == '\\n' || (i > 3 && !is_done(names))) {
            printf("%d: %s\\n", i, names->next);
        } else {
            total += i * 2 - gcd(count, 12) / 3;
        }
    }
    return;
}
"""

SQL_LIKE = r"""
root ::= (query ";" ws)+
query ::= select (set_operator select)* order? limit?
set_operator ::= ("UNION" (space "ALL")? | "EXCEPT" | "INTERSECT") space
select ::= "SELECT" space ("DISTINCT" space)? columns ws "FROM" space sources
  ("WHERE" space condition)? ("GROUP BY" space values)? ("HAVING" space condition)?
columns ::= column ("," ws column)*
column ::= "*" ws | value ("AS" space name ws)?
sources ::= source (join source "ON" space condition)*
source ::= name space (name space)? | "(" ws query ")" ws name space
join ::= (("LEFT" | "RIGHT" | "INNER") space)? "JOIN" space
order ::= "ORDER BY" space value (("ASC" | "DESC") ws)? ("," ws value (("ASC" | "DESC") ws)?)*
limit ::= "LIMIT" space number ws
condition ::= conjunction ("OR" space conjunction)*
conjunction ::= test ("AND" space test)*
test ::= "NOT" space test | "EXISTS" ws "(" ws query ")" ws | "(" ws condition ")" ws
  | value ("IS" space ("NOT" space)? "NULL" ws
  | ("NOT" space)? "IN" ws "(" ws (query | values) ")" ws
  | "BETWEEN" space value "AND" space value | "LIKE" space string ws
  | ("<>" | "<=" | ">=" | "=" | "<" | ">") ws value)
values ::= value ("," ws value)*
value ::= product (("+" | "-" | "||") ws product)*
product ::= atom (("*" | "/") ws atom)*
atom ::= number ws | string ws | function | name ("." name)? ws | "(" ws value ")" ws
function ::= ("COUNT" | "SUM" | "AVG" | "MIN" | "MAX" | "LOWER" | "COALESCE") "(" ws
  ("*" ws | ("DISTINCT" space)? values) ")" ws
name ::= [a-z_] [a-z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
string ::= "'" ([^'] | "''")* "'"
space ::= [ \n]+
ws ::= [ \n]*
"""

SQL_LIKE_TEXT = """SELECT c.name, COUNT(DISTINCT o.id) AS orders, SUM(o.total * 1.19) AS gross
FROM customers c LEFT JOIN orders o ON o.customer_id = c.id
WHERE c.country IN ('DE', 'FR') AND (o.placed_at >= '2024-01-01' OR o.id IS NULL)
GROUP BY c.id, c.name HAVING COUNT(*) > 3 ORDER BY gross DESC, c.name LIMIT 20;
SELECT * FROM products WHERE name LIKE '%lamp%' AND price BETWEEN 5 AND 9.5;
"""

MARKUP = r"""
root ::= heading block+
block ::= heading | paragraph | list | code
heading ::= "#" "#"? "#"? " " inline+ "\n\n"
paragraph ::= inline+ "\n\n"
list ::= ("- " inline+ "\n")+ "\n"
code ::= "```" [a-z]* "\n" ([^`] [^\n]* "\n" | "\n")* "```\n\n"
inline ::= plain | "**" plain "**" | "`" [^`\n]+ "`" | "[" plain "](" [^ )\n]+ ")"
plain ::= [^#*`\[\]\n-] [^*`\[\]\n]*
"""

MARKUP_TEXT = """# Growing from one root

A *ramet* is one stem of a plant colony. See [the manual](https://example.org/manual).

- **First** item, with `code` in it
- second item

```python
print("hello")
```

The end.

""".replace("*ramet*", "**ramet**")

GRAMMARS = {
    "JSON": (JSON, JSON_TEXT),
    "arithmetic": (ARITHMETIC, ARITHMETIC_TEXT),
    "C-like": (C_LIKE, C_LIKE_TEXT),
    "SQL-like": (SQL_LIKE, SQL_LIKE_TEXT),
    "markup": (MARKUP, MARKUP_TEXT),
}
"""By name, a grammar in GBNF and a text of it."""
