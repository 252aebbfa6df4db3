"""The forms of tokens and keys that their issuers define: recognisable without what stands next to them."""

from __future__ import annotations

import re

# Secrets recognisable by their prefixes, which their issuers define.
FORMS = re.compile(
    r"""
    \b(?:
        (?:AKIA|ASIA)[0-9A-Z]{16}                                                       # AWS
        | hf_(?:oauth_|org_)?[A-Za-z0-9]{16,}(?:[._-][\w.-]{16,})?                       # Hugging Face
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
        | IQoJb3JpZ2luX2Vj[\w+/=]{20,}                                                  # AWS, of a session
        | pcsk_\w{4,}_\w{20,} | sbp_[0-9a-f]{40} | NRAK-[A-Z0-9]{27} | e2b_[0-9a-f]{40}  # Pinecone, Supabase, New Relic, E2B
        | \w{14}\.atlasv1\.[\w-]{40,} | dp\.[a-z]{2,5}\.[A-Za-z0-9]{40,}                 # Terraform, Doppler
        | pscale_(?:tkn|pw|oauth)_[\w.-]{20,} | v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}        # PlanetScale, Cloudflare
        | 1//0[\w-]{30,} | ATBB[A-Za-z0-9]{28,} | AQ[A-Za-z0-9+/]{36}==                  # Google, Bitbucket, Ceph
        | a[ks]-(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*\d)[A-Za-z0-9]{22}\b                      # Modal
        | secret_[\w-]{1,40}_[0-9a-f]{32}\.\w{32}                                       # Lambda
        # Whoever the issuer is: a prefix, and then what is no word.
        | (?!sha\d|md5)[a-z][a-z0-9]{1,9}[_-]
          (?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*\d[A-Za-z]*\d)[A-Za-z0-9]{28,}(?![A-Za-z0-9])
    )
    | (?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])                                # Azure
    | (?<!\d)\d{8,10}:AA[\w-]{30,}                                                         # Telegram
    | -----BEGIN(?:%20|\+)[\w%+]{0,40}KEY[\w%+]{0,20}-----[^\s"'&]*                      # in a URL
    | (?<![\w$])\$(?: [1567y] | 2[aby] )\$[^\s:$]+\$[^\s:]{10,}                         # /etc/shadow
    """,
    re.VERBOSE,
)
_STARTS_TEXT = """
    github_pat_ hv xai- csk- tgp_v1_ fw_ dapi GOCSPX- ATATT ATCTT gl GR1348941 fig o_v1_ shp K10 SWMTKN BEGIN%20 BEGIN+
    AKIA ASIA hf_ gh glpat nvapi sk- xox dckr pypi- AIza ya29 npm_ wandb_ eyJ xapp- r8_ SG. k_live k_test tskey- AGE- MUNGE:
    IQoJ pcsk_ sbp_ NRAK- e2b_ .atlasv1. dp. pscale_ v1.0- 1//0 ATBB AQ ak- as- secret_ Q~
    SHA256: AAAA MD5: LS0tLS1 gsk_ rpa_ lin_api_ api_org_ pplx- hvs. :AA $1$ $5$ $6$ $7$ $y$ $2
"""
STARTS = tuple(_STARTS_TEXT.split())
OF_LETTERS = "|".join(
    (
        *("AKIA", "ASIA", "hf_", "gh[opsur]_", "npm_", "wandb_", "AIza", "AAAA"),
        *("pcsk_", "NRAK-", "dp[.]", "ATBB"),
        *("gsk_", "rpa_", "lin_api_", "api_org_", "_live_", "_test_"),
    )
)
"""Prefixes of secrets that may contain no digit and no special character."""
LONG = re.compile(r"[_-][A-Za-z0-9]{28}")
"""What the last of the FORMS has to contain."""
