"""Lines that a program wrote which uses no GPU: a database, a web server, a mail server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Lines = Sequence[tuple[int, str]]

_NAMES = (
    r"(?:postgres(?:ql)?|pg[a-z_]*|psql|patroni|pgbouncer|mysqld?|mariadbd?|redis(?:-server)?|mongod?|nginx|apache2?|httpd|caddy"
    r"|traefik|haproxy|elasticsearch|opensearch|kafka|zookeeper|rabbitmq|postfix|dovecot|sshd|cron|grafana|prometheus|loki|influxd?"
    r"|clickhouse|minio|sqlite|synapse|gitea|nextcloud)"
)
_OTHER = re.compile(
    rf"""
    ^(?:\S+\ )?{_NAMES}(?:[-_]\w+)*\s+\|\                                 # docker compose logs
    | ^(?:[A-Z][a-z]{{2}}\ +\d+\ [\d:]+|\d{{4}}-\d\d-\d\dT\S+)\ \S+\ {_NAMES}(?:/\w+)?(?:\[\d+\])?:\ # a journal
    | ^\d{{4}}-\d\d-\d\d\ [\d:.]+\ [A-Z]{{3,4}}\ \[\d+\](?:\ \S+@\S+)?
      \ +(?:ERROR|LOG|HINT|FATAL|PANIC|WARNING|STATEMENT|CONTEXT|DETAIL):
    | ^\d{{4}}/\d\d/\d\d\ [\d:]+\ \[\w+\]\ \d+\#\d+:                        # nginx
    | ^\d{{4}}-\d\d-\d\d[T ][\d:.]+Z?\ \d+\ \[\w+\]\ (?:\[MY-\d+\]|InnoDB)  # MySQL
    | \b(?:psycopg\d?(?:_\w+)?|sqlalchemy|pymysql|MySQLdb|sqlite3|redis|pymongo|asyncpg|elasticsearch)
      \.(?:\w+\.)*\w*(?:Error|Full|Exception)\b
    | \bcould\ not\ (?:extend|write\ to|write\ temporary\ statistics)\ file\ "(?:base|pg_\w+)/
    """,
    re.VERBOSE,
)


def of_other_programs(lines: Lines) -> Iterator[int]:
    return (number for number, line in lines if _OTHER.search(line))
