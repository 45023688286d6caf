"""perl: hashes, arrays, closures, regular expressions, sorting, string building, fork and threads of processes."""
import app

SCRIPT = r"""
use strict; use warnings;
my %table; my $state = 1;
sub draw { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return $state % shift; }
for my $i (1 .. 120000) {
  my $key = 'key' . draw(40000);
  push @{$table{$key}}, $i;
  delete $table{'key' . draw(40000)} if $i % 3 == 0;
}
my $sum = 0;
$sum += scalar(@{$table{$_}}) for sort keys %table;
print scalar(keys %table), " $sum\n";
my $text = join ' ', map { $_ . 'x' x draw(50) } 1 .. 30000;
my $count = 0;
while ($text =~ /(\d+)(x+)/g) { $count += length $2; }
print length($text), " $count\n";
(my $copy = $text) =~ s/(\d)(\d)/$2$1/g;
print substr($copy, 1000, 60), "\n";
my @subs = map { my $n = $_; sub { return $n * shift } } 1 .. 2000;
my $product = 0; $product += $subs[$_]->(3) for 0 .. $#subs;
print "$product\n";
my $grown = ''; $grown .= chr(65 + draw(26)) x draw(20) for 1 .. 200000;
print length($grown), ' ', unpack('%32C*', $grown), "\n";
$| = 1;
for my $n (1 .. 5) {
  my $child = fork; die unless defined $child;
  if (!$child) { my @a = map { "$_" x 10 } 1 .. 10000; %table = (); print "child $n ", scalar(@a), "\n"; exit 0; }
  waitpid $child, 0; die if $?;
}
"""


def test():
    app.need("perl")
    app.same(["perl", "-e", SCRIPT], 8 << 20, extra={"PERL_HASH_SEED": "0"})
    return "perl: ok"


if __name__ == "__main__":
    app.main(test)
