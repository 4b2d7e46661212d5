"""What the tests of exported pages share: conversations to be shown, a page that is out to run something."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from retold.domain import events as e
from retold.tests.histories import DAY_US, History, history

BOAT, NOTES, LONG = "20260504_080000_b33d43d5", "20260509_101500_5a1d00c2", "20260511_120000_01f9bb31"
ATTACKS = (
    "<script>window.ran = 'script'</script>",
    "<img src=x onerror=\"window.ran='onerror'\">",
    "<svg/onload=window.ran='svg'>",
    "</style></script></textarea></title></template></details></pre></code><script>window.ran='out'</script>",
    "<iframe srcdoc=\"<script>parent.ran='srcdoc'</script>\"></iframe>",
    "[here](javascript:window.ran='link') <javascript:window.ran='auto'> [x](JaVaScRiPt:window.ran=1)",
    "[data](data:text/html,<script>window.ran=1</script>) ![i](data:image/svg+xml;base64,PHN2Zz4=)",
    "![loads](https://tracker.example/pixel.png) <link rel=stylesheet href=https://tracker.example/x.css>",
    '<base href="https://evil.example/"><meta http-equiv=refresh content="0;url=https://evil.example/">',
    "<form action=https://evil.example><button autofocus onfocus=\"window.ran='focus'\">go</button></form>",
    '"\'><b style="position:fixed;inset:0;background:red" onmouseover="window.ran=1">over all</b>',
    "<!-- --!> <![CDATA[ ]]> <?php ?> &lt;script&gt; &#60;script&#62; &#x202e; &NewLine;",
    "\u202e;)(trela\u202c \u2066left\u2069 a\x00b\x1b[31m\u2028c\u2029d\x85e\r\nf",
    "{{ 7*7 }} {% raw %} ${window.ran=1} <%= 1 %>",
    '```"><script>window.ran=1</script>\ncode </code></pre><script>window.ran=1</script>\n```',
    "| a | b |\n|---|---|\n| <script>window.ran=1</script> | [x](javascript:1) |",
    "[https://bank.example](https://evil.example/login) <https://ok.example/auto> https://ok.example/bare.",
    "[\u202eknab](https://evil.example) [https://b\u0430nk.example/](https://xn--bnk-5cd.example/)",
)
"""Texts that would run something, load something or break out of where they stand."""


def shared(home: Path) -> None:
    """Three conversations as a person would send them on."""
    with history(home) as h:
        h.session(BOAT, source="telegram", title="Mending the boat", model="claude", cwd="/home/you/boats")
        h.append(f"session:{BOAT}", e.PromptChanged("p1", "You help people who mend boats."))
        h.say(BOAT, "The hull leaks.\n\nWhat first? See https://boats.example/manual, page 12.")
        arguments = json.dumps({"query": "drying time larch", "limit": 3})
        call = [{"id": "c1", "function": {"name": "web_search", "arguments": arguments}}]
        h.say(BOAT, None, "assistant", reasoning="Is the seam dry?", tool_calls=json.dumps(call))
        output = "\n".join(f"{each}. larch dries in {each} days" for each in range(1, 60))
        h.say(BOAT, output, "tool", tool_name="web_search")
        h.say(BOAT, "Dry it **first**.\n\n1. Rake\n2. Dry\n\n```python\nprint(1)\n```", "assistant")
        h.now_us += DAY_US
        h.session(NOTES, source="cli", title="Release notes")
        h.say(NOTES, "Write the notes, larch or not.")
        h.say(NOTES, "Here they are.", "assistant")
        h.now_us += DAY_US
        h.session(LONG, source="slack", title="Garden")
        for index in range(120):
            h.say(LONG, f"bed {index}: how much water?\n\nand when?", "assistant" if index % 2 else "user")


def hostile(home: Path) -> None:
    """Two conversations of which every text is out to run something."""
    with history(home) as h:
        _attack(h, "hostile<1>&\"'")
        _attack(h, "again")


def _attack(h: History, session_id: str) -> None:
    every = "\n\n".join(ATTACKS)
    h.session(session_id, source=ATTACKS[0], title=ATTACKS[3], model=ATTACKS[10], cwd=ATTACKS[1])
    h.append(f"session:{session_id}", e.PromptChanged("p", every))
    for role in ("user", "assistant", "tool", '"><script>window.ran=1</script>'):
        h.say(session_id, every, role, tool_name=ATTACKS[0] if role == "tool" else None)
        for each in ATTACKS:
            h.say(session_id, each, role)
    call = [{"id": "c", "function": {"name": ATTACKS[3], "arguments": json.dumps({ATTACKS[0]: ATTACKS[1]})}}]
    attachments = [e.Attachment(ATTACKS[0], ATTACKS[1], every), e.Attachment(ATTACKS[3], "image")]
    parts = [{"type": "text", "text": ATTACKS[0]}, {"type": ATTACKS[1]}, {"type": "image_url"}, ATTACKS[2]]
    h.say(
        session_id,
        "\0json:" + json.dumps(parts),
        "assistant",
        reasoning=every,
        tool_calls=json.dumps(call),
        attachments=attachments,
    )
    h.say(session_id, "<script>window.ran=1</script>" * 40_000, "tool")  # a megabyte in one line
    h.say(session_id, "[" * 200_000, "assistant")
    h.end(session_id, ATTACKS[0])


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)
