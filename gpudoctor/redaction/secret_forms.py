"""The forms of secrets and of the text next to them: in variables, options, URLs, settings, code, tables."""

from __future__ import annotations

import re

# Secrets recognisable by their prefixes, which their issuers define.
FORMS = re.compile(
    r"""
    \b(?:
        (?:AKIA|ASIA)[0-9A-Z]{16}                                                       # AWS
        | hf_[A-Za-z0-9]{16,}                                                           # Hugging Face
        | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | glpat-[\w-]{16,}            # GitHub, GitLab
        | nvapi-[\w-]{16,}                                                              # NVIDIA
        | sk-(?:[a-z]+-)*[A-Za-z0-9_-]{20,}                                             # OpenAI, Anthropic
        | xox[abprs]-[\w-]{10,}                                                         # Slack
        | dckr_pat_[\w-]{16,} | pypi-[\w-]{30,}
        | AIza[\w-]{30,} | ya29\.[\w-]{20,}                                             # Google
        | npm_[A-Za-z0-9]{30,} | wandb_v1_\w{20,}
        | eyJ[\w-]{8,}\.[\w-]{2,}\.[\w-]*                                               # a JSON web token
        | xapp-\d-[\w-]{10,}                                                            # Slack
        | r8_[A-Za-z0-9]{30,}                                                           # Replicate
        | SG\.[\w-]{16,}\.[\w-]{16,}                                                    # SendGrid
        | [srp]k_(?:live|test)_\w{10,}                                                  # Stripe
        | tskey-[\w-]{16,}                                                              # Tailscale
        | AGE-SECRET-KEY-\w{10,} | MUNGE:[\w+/=]{8,}
        | SHA256:[A-Za-z0-9+/]{43}(?![A-Za-z0-9+/]) | AAAA[A-Z][0-9A-Za-z]+[\w+/=]{20,} # SSH
        | MD5(?::[0-9a-f]{2}){16}
        | LS0tLS1CRUdJTi[\w+/=]+ | eyJhdXRocyI6[\w+/=]+                                 # base64: a key in PEM, Docker's logins
        | (?:gsk|rpa|lin_api|api_org)_[A-Za-z0-9]{30,} | pplx-[A-Za-z0-9]{30,}
        | hv[sbr]\.[\w-]{20,}                                                           # Vault
        | xai-\w{20,} | csk-[a-z0-9]{20,} | tgp_v1_[\w-]{20,} | fw_[A-Za-z0-9]{20,}      # models
        | dapi[0-9a-f]{32}(?:-\d)? | GOCSPX-[\w-]{20,} | AT[AC]TT[\w=-]{20,}             # Databricks, Google, Atlassian
        | dckr_oat_[\w-]{16,} | gl(?:rt|dt|ptt|cbt|ft|soat)-[\w-]{16,} | GR1348941[\w-]{16,}
        | fig[dr]_[\w-]{20,} | do[opr]_v1_[0-9a-f]{32,} | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32} | glsa_\w{20,}
        | K10[0-9a-f]{16,}::\S+ | SWMTKN-1-[\w-]{30,}                                    # K3s, Docker Swarm
        # Whoever the issuer is: a prefix, and then what is no word.
        | (?!sha\d|md5)[a-z][a-z0-9]{1,9}[_-]
          (?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*\d[A-Za-z]*\d)[A-Za-z0-9]{28,}(?![A-Za-z0-9])
    )
    | (?<!\d)\d{8,10}:AA[\w-]{30,}                                                         # Telegram
    | -----BEGIN(?:%20|\+)[\w%+]{0,40}KEY[\w%+]{0,20}-----[^\s"'&]*                      # in a URL
    | (?<![\w$])\$(?: [1567y] | 2[aby] )\$[^\s:$]+\$[^\s:]{10,}                         # /etc/shadow
    """,
    re.VERBOSE,
)
_STARTS_TEXT = """
    github_pat_ hv xai- csk- tgp_v1_ fw_ dapi GOCSPX- ATATT ATCTT gl GR1348941 fig o_v1_ shp K10 SWMTKN BEGIN%20 BEGIN+
    AKIA ASIA hf_ gh glpat nvapi sk- xox dckr pypi- AIza ya29 npm_ wandb_ eyJ xapp- r8_ SG. k_live k_test tskey- AGE- MUNGE:
    SHA256: AAAA MD5: LS0tLS1 gsk_ rpa_ lin_api_ api_org_ pplx- hvs. :AA $1$ $5$ $6$ $7$ $y$ $2
"""
STARTS = tuple(_STARTS_TEXT.split())
OF_LETTERS = "|".join(
    (
        *("AKIA", "ASIA", "hf_", "gh[opsur]_", "npm_", "wandb_", "AIza", "AAAA"),
        *("gsk_", "rpa_", "lin_api_", "api_org_", "_live_", "_test_"),
    )
)
"""Prefixes of secrets that may contain no digit and no special character."""
LONG = re.compile(r"[_-][A-Za-z0-9]{28}")
"""What the last of the FORMS has to contain."""
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
    access | private | secret | auth | license | account | api | encryption | signing | master | session
    | wandb | hf | ngc | openai | anthropic
)[_-]?key"""
_NAME = rf"""
    (?:
        pass(?:word|wort|wd|phrase) | (?<![a-z])psk | [a-z]_pass | secret | credentials? | {_KEYS}
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
    (?<=[?&])( (?: [\w-]*(?: token | secret | signature | key | password | sig | credential | code ) )= )
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
    rf"""
    ( \b(?: setenv | ENV | ARG | set\ -\w+ | -e | --env )\ {_VARIABLE}[ ] )( \S{{6,}} )
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
                sshpass | mysql | mysqldump | (?: docker | podman | nerdctl | helm\ registry | az\ acr )\ login
            )\b[^|\n]{{0,400}}?\ -p\ ?
            | \bcurl\b[^|\n]{{0,400}}?\ (?: -u\ ? | --user[ =] )["']?[^\s:"']+:
            | \bredis-cli\b[^|\n]{{0,400}}?\ -a[ ]
            | \bipmitool\b[^|\n]{{0,400}}?\ -P[ ]
            | \bracadm\b[^|\n]{{0,400}}?\ -p[ ]
            | \bldap\w+\b[^|\n]{{0,400}}?\ -w[ ]
            | \bsnmp\w+\b[^|\n]{{0,400}}?\ -c[ ]
            | \b(?:smbclient|rpcclient|net)\b[^|\n]{{0,400}}?\ (?:-U|--user)[ =]?["']?[^\s%"']{{1,60}}%
            | \ -pass(?:in|out)\ pass:
        )
    )(?!\d+(?:\s|$)){_ARGUMENT}
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
    ( \blogin\s+\S+\s+password\s+ | ^[ \t]*password[ \t]+(?=\S+$) )( \S{4,} )
    """,
    rf"""(?i)
    ( {_NAME}{_QUOTE}?(?: \s?(?: => | [=:] | %3A | (?<=["']), ) | \s{{2,4}}= )\s{{0,4}}\[?(?:[ubr](?=["']))?{_QUOTE}? )
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
    | ldap | snmp | racadm | \ -U
    """,
    re.IGNORECASE | re.VERBOSE,
)
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
