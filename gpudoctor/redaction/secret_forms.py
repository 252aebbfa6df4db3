"""The forms of secrets and of the text next to them: in variables, options, URLs, settings, code, tables."""

from __future__ import annotations

import re

IN_URL = re.compile(
    r"""
    (?<=://)[^/@\s:]*:[^/@\s]+(?=@)
    | (?<=://)[^/@\s:]{20,}(?=@)
    | (?<=:thin:)[^/@\s:]+/[^/@\s]+(?=@)        # Oracle's JDBC
    """,
    re.VERBOSE,
)

_QUOTE = r"(?: \\{0,3}[\"'`]{1,3} | &quot; | %22 | [“”‘’] )"
_VALUE = r"""(?:
    (?<=["'“])[^"'“”\n]{3,}(?=["'”])
    | "[^"\n]{3,}" | '[^'\n]{3,}'
    | [^\s"'“”,;&<>{}()\[\]\\]{4,}
)"""
_KEYS = r"""(?:
    access | private | pre_?shared | secret | auth | license | account | api | encryption | signing | master | session
    | wandb | hf | ngc | openai | anthropic
)[_-]?key"""
_NAME = rf"""
    (?:
        contraseña | mot\ de\ passe | senha | wachtwoord | пароль | 密码 | 密碼 | パスワード | hasło
        | pass(?:word|wort|wd|[ -]?phrase) | (?<![a-z])psk | [a-z]_pass | secret | credentials? | {_KEYS}
        | (?:
            api | auth | access | hf | hub | bearer | id | refresh | session | bot | git\w* | wandb | ngc | slack | registry
            | personal | join | bootstrap
        )[_-]?token
        | (?<![a-z])(?: token | auth | identitytoken )
    )(?:_?(?:id|value|pem|data|base64|b64))?
"""
_VARIABLE = r"""
    \b[A-Z0-9_]{0,60}(?:
        TOKEN | SECRET | PASSWORD | PASSWD | PASSPHRASE | _PASS | _PWD | _KEY | CREDENTIALS? | _AUTH | _PAT
    )(?:_[A-Z0-9_]{1,60})?
"""
_ARGUMENT = r"([^\s\"'-][^\s\"']{3,}|\"[^\"\n]+\"|'[^'\n]+')"

_BESIDE = (
    # URLs and headers.
    r"""(?i)
    (?<=[?&])( (?: pass | pw | [\w-]*(?: token | secret | signature | key | password | sig | credential | code ) )= )
    ( [^&\s"'<>]{4,} )
    """,
    r"""(?i)
    ( ://[^\s"'<>]{1,200}?/t/ )( [A-Za-z0-9][\w-]{7,} )(?=/)
    """,
    r"""(?i)
    (
        (?:
            hooks\.slack\.com/\w+ | discord(?:app)?\.com/api/webhooks | webhook\.office\.com/webhookb2
            | chat\.googleapis\.com/v1/spaces
        )/
    )( [^\s"'<>]+ )
    """,
    r"""
    ( (?<![\w/@.:-])[\w.-]{1,40}: )( [^\s@/:"'<>]{3,60} )(?=@[\w-]+(?:\.[\w-]+)+(?![\w@]))
    """,
    r"""(?i)
    ( %2F%2F[^%/\s@]{1,40}%3A )( [^\s@&/]{2,60}? )(?=%40)
    """,
    r"""(?i)
    ( (?: token | secret | signature | key | password | sig | credential )%3D )( [^&%\s"'<>]{4,} )
    """,
    r"""(?i)
    \b( (?: Bearer | Basic | Authorization["']?:(?:\ ?\w+)? | X-API-Key["']?: )(?: \ + | %20 )["']? )
    ( [A-Za-z0-9+/=._~-]{8,} )
    """,
    r"""(?i)
    ( \b(?:set-)?cookie:[ ]* )( [^\s"'][^\n"']{3,} )
    """,
    # Variables. If a line has nothing else, the secret goes to its end, with any characters.
    rf"""(?i)
    ( \bname["']?\s?[:=>]\s?["']?{_VARIABLE}(?: ["'] | </name> )?\W{{1,4}}value["']?\s?[:=>]\s?["']? )( {_VALUE} )
    """,
    rf"""(?m)
    ( ^[ \t]*(?: export[ ] | -[ ] )?{_VARIABLE}= )( [^\s"']\S* )$
    """,
    rf"""
    ( "{_VARIABLE}= )( (?: [^"\\\n] | \\. )+ )(?=")
    """,
    rf"""
    ( {_VARIABLE}(?: = | :\ {{1,30}}(?=\S*\d)(?=\S{{8}}) ) )
    ( "[^"\n]+" | '[^'\n]+' | [^\s"',;&<>{{}}()\[\]\\]+ )
    """,
    rf"""(?m)
    ( ^[ \t]*{_VARIABLE}:\ {{2,30}} )( [^\s"'<][^\s"']{{5,}} )$
    """,
    rf"""
    ( <key>{_VARIABLE}</key>\s{{0,20}}<string> )( [^<\n]{{3,}} )
    """,
    rf"""
    ( \b(?: setenv | setx | ENV | ARG | set\ -\w+ | -e | --env )\ {_VARIABLE}[ ] )( \S{{6,}} )
    """,
    rf"""
    ( ["']{_VARIABLE}["'](?: \]\s?= | , | : )\s?["'] )(?!value["'])( [^"'\n]+ )(?=["'])
    """,
    # Options.
    rf"""(?i)
    (
        (?<![\w-])--?(?=\w)
        [\w-]*(?: password | passwd | passphrase | requirepass | secret | token | credentials? | {_KEYS} )
        (?: [ =] | ["'],\s?["'] )
    )(?!-)( {_VALUE} )
    """,
    rf"""
    (
        (?:
            \b(?:
                sshpass | mysql | mysqldump | redfishtool | az\ login
                | (?: docker | podman | nerdctl | helm\ registry | az\ acr )\ login
            )\b[^|\n]{{0,400}}?\ -p\ ?
            | \bcurl\b[^|\n]{{0,400}}?\ (?: -[uU]\ ? | --(?:proxy-)?user[ =] )["']?[^\s:"']+:
            | \bredis-cli\b[^|\n]{{0,400}}?\ -a[ ]
            | \bipmitool\b[^|\n]{{0,400}}?\ -P[ ]?
            | \bracadm\b[^|\n]{{0,400}}?\ -p[ ]
            | \bldap\w+\b[^|\n]{{0,400}}?\ -w[ ]
            | \bsnmp\w+\b[^|\n]{{0,400}}?\ -[cA][ ]
            | \blftp\b[^|\n]{{0,400}}?\ -u\ [^\s,]{{1,60}},
            | \bnet\ use\b[^|\n]{{0,400}}?\ /user:\S{{1,80}}[ ]
            | \b(?:smbclient|rpcclient|net)\b[^|\n]{{0,400}}?\ (?:-U|--user)[ =]?["']?[^\s%"']{{1,60}}%
            | \ -pass(?:in|out)\ pass:
        )
    )(?!\d+(?:\s|$)){_ARGUMENT}
    """,
    rf"""
    ( \bsnmp\w+\b[^|\n]{{0,400}}?\ -X[ ] ){_ARGUMENT}
    """,
    r"""
    ( \bmc\ (?:alias\ set|config\ host\ add)\ \S{1,80}\ \S{1,200}\ )( \S+(?:\ \S+)? )
    """,
    r"""(?i)
    (
        (?:
            (?: wandb | huggingface-cli | hf\ auth | ngc )\ login\ (?:--\S+\ )*
            | \bapi\ key:?\s+
            | \blogin\(key=["']
        )
    )( [\w-]{16,} )
    """,
    r"""
    ( \becho\ (?:-n\ )?["']? )( [^\s"'|]{4,} )(?=["']?\ \|\ (?: sudo\ -S | \S+\ login\b[^|\n]*--password-stdin ))
    """,
    # Settings, code, tables, sentences.
    r"""(?im)
    (
        \blogin\s+\S+\s+password\s+ | ^[ \t]*(?: password | bindpw | rootpw | requirepass | masterauth )[ \t]+(?=\S+$)
        | \b\w{0,40}(?: StoragePass | authtok )\s?=\s?
    )( \S{4,} )
    """,
    r"""
    ( ^[\w.*-]+:(?: 5432 | 5433 | 6432 | \* ):[\w.*-]+:[^:\s]+: )( \S{4,} )$
    """,
    r"""
    ( \bSignature= )( [0-9a-f]{32,} )
    """,
    r"""
    ( \b(?:UID|User\ Id)=[^;\s]{1,60};\s?(?i:pwd|password)= )( [^\s;"']+ )
    """,
    rf"""(?i)
    (
        {_NAME}{_QUOTE}?(?: \s?(?: => | [=:：] | %3A | (?<=["']), ) | \s{{2,4}}= )\s{{0,4}}
        (?: (?:!!?\w{{0,10}}|&\w{{1,20}})\  )?\[?(?:[ubr](?=["']))?{_QUOTE}?
    )
    ( {_VALUE} )
    """,
    # A name of a few letters, and after a plain "key" or "token": only what cannot be a word.
    r"""
    ( (?<![A-Za-z])(?: PASS= | pass:?[= ] | (?:[A-Za-z]+_)?(?:pw|PW)\s?[=:]\s? )["']? )( (?=\S*\d)(?=\S*[A-Za-z])[^\s"',;/]{6,} )
    """,
    r"""(?i)
    ( \b[\w-]{0,40}(?: token | key | secret | credential )s?["']?[ :=]{1,2}(?:(?: is | was | with | value )\ )?["']? )
    ( (?-i:
        (?=[a-z0-9_+=-]*[A-Z])(?=[A-Z0-9_+=-]*[a-z])(?=[A-Za-z_+=-]*\d[A-Za-z_+=-]*\d)[\w+=-]{20,}
        | (?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{24,}
        | (?=(?:[A-Za-z]*\d){6})(?=(?:\d*[A-Za-z]){6})[A-Za-z0-9]{24,}
    ) )(?![\w./])
    """,
    rf"""(?i)
    ( <[\w:]*{_NAME}> )( [^<\n]{{3,}} )(?=</)
    """,
    rf"""(?i)
    ( \|\s*[\w ]{{0,20}}{_NAME}\s*\|\s* )( [^\s|]{{4,}} )(?=\s*\|)
    """,
    r"""
    ( (?<![A-Za-z_])[Pp]wd\s?=\s?["']? )( [^\s"';,$~/%\\][^\s"';,]{3,} )
    """,
    r"""(?i)
    ( \bpass(?:word|phrase)(?:\ for\ [\w ]{1,20}?)?\ (?:is|was):?\ ["']? )( (?=\S*\d)[^\s"']{6,} )
    """,
)
BESIDE = tuple(re.compile(pattern, re.VERBOSE) for pattern in _BESIDE)
"""The text before a secret, and the secret."""
SIGNS = re.compile(
    r"""
    pass | secret | token | key | auth | credential | bearer | basic[ ] | login | _pat= | sig= | code= | cookie | pwd | psk
    | mysql | curl | redis | ipmi | sudo\ -s | %3d | /t/ | webhook | hooks\. | spaces/ | \bpw | _pw | :[^\s@/]{3,60}@ | %40
    | pwd= | contrase | mot\ de\ p | senha | wachtw | парол | 密 | パスワ | hasło | \bmc\ | net\ use | lftp | redfish | signature
    | bindpw | rootpw | authtok | :(?:5432|5433|6432): | ldap | snmp | racadm | \ -U
    """,
    re.IGNORECASE | re.VERBOSE,
)
PARTS_OF_SIGNS = (
    *("pass", "secret", "token", "key", "auth", "credential", "bearer", "basic ", "login", "_pat=", "sig=", "code=", "cookie"),
    *("pw", "psk", "mysql", "curl", "redis", "ipmi", "sudo -s", "%3d", "/t/", "webhook", "hooks.", "spaces/", "@", "%40"),
    *("contrase", "mot de p", "senha", "wachtw", "mc ", "net use", "lftp", "redfish", "signature", "ldap", "snmp", "racadm"),
    *(":5432:", ":5433:", ":6432:", " -u"),
)
"""A text of ASCII with one of the SIGNS has one of these in lower case: searching for all of them at once is ten times faster."""
HARMLESS = re.compile(
    r"""
    ["']?(?:
        \d{1,12}(?:\.\d+)?
        | none | null | nil | true | false | yes | no | removed
        | /(?: root | etc | home | run | var | usr | opt | tmp | proc | dev )/\S*
        | XID_\w+
        | enabled | disabled | basic | digest | plain | simple | expected | unexpected | munge | kerberos | negotiate
        | password | available | unavailable | valid | publickey
        | present | required | missing | invalid | unset | empty | set | failed | errors?
        | <[^>]*>? | \*+ | x{3,} | \.\.\.                                                   # what stands for a value
        | string | optional\w* | str | int | unknown | type | default                       # types
        | denied | expired | unauthorized | authentication | authorization | information
        | (?: args | self | cfg | config | opts? | os | tokenizer | settings | ctx )\.\w+(?:\.\w+)*
        | <redacted:\w+>
        | \$(?:\{?[A-Za-z_]\w*\}?)?
    )["']?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_KEY = r"[A-Z0-9 ]*PRIVATE\ KEY(?:\ BLOCK)?"
BEGIN = re.compile(rf"----[- ]BEGIN\ {_KEY}\ ?---- | ^Private-Lines:\ \d+$", re.VERBOSE)
END = re.compile(rf"----[- ]END\ {_KEY}\ ?---- | ^Private-MAC:[ ]", re.VERBOSE)
_BLOCK = rf"{_KEY}|CERTIFICATE"
BLOCK = re.compile(
    rf"""
    ----[- ]BEGIN\ (?:{_BLOCK})\ ?-----?
    (?: [^-] | -(?!---) )*
    (?: ----[- ]END\ (?:{_BLOCK})\ ?-----? )?
    """,
    re.VERBOSE,
)
OPENED = re.compile(rf"(?:-\ )?[\"']?{_NAME}[\"']?:\s*[|>][-+]?\s*$", re.IGNORECASE | re.VERBOSE)
"""In YAML: the more indented lines below are the secret."""
ALONE = re.compile(
    rf"""
    (?:
        (?i:{_NAME}){_QUOTE}?\s?[:=]
        | {_VARIABLE}[:=]
        | --[\w-]{{0,40}}(?: token | password | passwd | secret | key )
    )
    \s{{0,20}}(?: \\\s{{0,20}} )?$
    """,
    re.VERBOSE,
)
"""A name at the end of a line; the line below can be the secret."""
BELOW = re.compile(r"([\"']?)(?=\S*\d|\S{16})([^\s\"',\\]{6,}(?<!:))(\1\s{0,20}[,;\\]?\s{0,20})$")
NAMED = re.compile(rf"(?:-\ )?name:\s*[\"']?{_VARIABLE}[\"']?\s*$", re.VERBOSE)
VALUE = re.compile(r"(value:\s*)(\S.*)")
"""In Kubernetes' manifests: the line below a name."""

NAME_OF_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|CREDENTIAL")
"""In the name of an environment variable."""
