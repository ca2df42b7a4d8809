"""The command that shows batches, on a terminal and as a page."""

from html.parser import HTMLParser

import pytest
from small import FLAGS, call, write_text

from train.lab import inspect, roles


@pytest.fixture
def home(tmp_path, monkeypatch):
    write_text(tmp_path / "text.txt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Page(HTMLParser):
    """Counts tokens by role, and checks that tags are closed."""

    def __init__(self):
        super().__init__()
        self.open, self.roles = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        words = (dict(attrs).get("class") or "").split()
        if words[:1] == ["t"] and "title" in dict(attrs):
            self.roles.append(words[1])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_rows_on_stdout_and_the_same_in_a_page(home):
    code, out, err = call(inspect.main, *FLAGS, "--task=mlm", "--rows=3", "--batches=2", "--to=page.html")
    assert code == 0, err
    assert "places" in err
    assert out.count("batch 1, row ") == 3
    page = Page()
    page.feed((home / "page.html").read_text())
    assert page.open == []
    assert len(page.roles) == 2 * 3 * 32
    assert page.roles.count("masked") == out.count("[MASK]\u2192")
    assert set(page.roles) <= set(roles.ROLES)
    assert sorted(path.name for path in home.iterdir()) == ["page.html", "text.txt"], "nothing is trained"


def test_a_text_that_is_html_itself(home):
    (home / "rows.tsv").write_text("text\tlabel\n" + "".join(f"<b>a & {n}</b>\t<i>{n % 2}\n" for n in range(40)))
    flags = [flag for flag in FLAGS if not flag.startswith("--data")]
    code, out, err = call(inspect.main, *flags, "--task=classify", "--data=rows.tsv", "--to=page.html", "--eval")
    assert code == 0, err
    assert "labels <i>" in out
    page = Page()
    page.feed((home / "page.html").read_text())
    assert page.open == []


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--rows=0", "--rows=0 must be at least 1"),
        ("--task=lm --to=.", "--to=. cannot be written"),
        ("--task=lm --to=nowhere/a.html", "--to=nowhere/a.html cannot be written"),
        ("--task=lm --resume", "--resume goes on with a run, and nothing is trained here; leave it out"),
        ("--task=lm --model.widht=8", "unknown flag --model.widht; did you mean model.width?"),
        ("--task=lm --data=nowhere.txt", "no file matches 'nowhere.txt'"),
    ],
)
def test_bad_input(flags, says, home):
    code, out, err = call(inspect.main, *flags.split())
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_help_fits_on_a_screen():
    code, out, _ = call(inspect.main, "--help")
    assert code == 0
    assert len(out.splitlines()) < 24
