"""Common English words to make prompts of."""

from __future__ import annotations

_TEXT = """
able about above across act add afraid after again age ago air all alone along already also always among animal answer
any apple area arm around arrive art ask autumn away baby back bad bag bake ball bank base basket bath beach bean bear
beautiful became because bed before began behind bell below beside best better between big bird black blue board boat
body book both bottom bowl box boy bread break breakfast bridge bright bring brother brown build busy but butter buy
cake call came camp can candle car card care carry case cat catch cause chair chance change cheap cheese child choose
church circle city clean clear climb clock close cloud coat coffee cold color come common cook cool copper corn corner
cost count country course cover cow cross cry cup cut dance dark daughter day deep desk did different dinner direct
dish doctor dog door down draw dream dress drink drive dry dust each ear early earth east easy eat edge egg eight
empty end enough evening ever every eye face fact fall family far farm fast father few field fight fill final find
fine finger fire first fish five flat floor flower fly follow food foot forest forget fork form four free fresh friend
from front fruit full garden gate gave general gentle get girl give glad glass go gold good grass gray great green
ground group grow hair half hall hand happy hard hat have head hear heart heavy help here high hill history hold home
honey hope horse hot hour house how hundred hurry ice idea inside iron island join journey jump just keep key kind
king kitchen knew know lady lake lamp land language large last late laugh lead leaf learn leave left leg lemon letter
light like line listen little long look lost loud love low lunch machine made make man many map mark market matter
maybe meal mean measure meat meet middle might mile milk mind minute mirror money month moon more morning most mother
mountain mouth move much music must name near neck need never new next night nine noise north nose note nothing now
number ocean off often oil old once one only open orange order other our outside over own page paint pair paper park
part pass past path peace pen people perhaps person picture piece place plain plan plant plate play please point poor
potato power present pretty price print quick quiet rain ran reach read ready real reason red remember rest rice rich
ride right ring rise river road rock roof room root rope round rule run sad safe said sail salt same sand sat save
school sea season seat second see seed seem sell send sentence seven several shade shape share she sheep ship shirt
shoe shop short should shoulder show side sign silver simple since sing sister sit six size skin sky sleep slow small
smell smile snow soap soft some son song soon sound soup south speak spoon spring square stand star start station stay
step still stone stood stop store story straight street strong sugar summer sun supper sure surface sweet table take
talk tall taste tea teach tell ten than thank their them then there these thick thin thing think third this thousand
three through time tired today together told tomorrow took top touch toward town travel tree true try turn twelve two
uncle under until upon use valley very village visit voice wait walk wall want warm wash watch water wave way wear
weather week weight well went west wet what wheel when where which while white who whole why wide wild will wind
window winter wise wish with woman wonder wood word work world write yard year yellow yes yesterday young
"""

WORDS = tuple(_TEXT.split())
"""Without meaning in their order: only the number of their tokens matters."""
