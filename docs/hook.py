"""What MkDocs does beyond its own: the pages of the catalog, and links to files that are not in the site."""

from __future__ import annotations

import re
from pathlib import Path

import catalog_pages
import llms
import practice_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, text in (catalog_pages.pages() | practice_pages.pages()).items():
        files.append(File.generated(config, path, content=text))
    listed = llms.text(config.nav or (), Path(config.docs_dir), config.site_url or "")
    files.append(File.generated(config, "llms.txt", content=listed))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A hand-written page may name a file of the repository, which the site does not hold."""
    return markdown if page.file.generated_by else _OUTSIDE.sub(r"\1 (`\2`)", markdown)
